"""Exhibits, related ones in a module: `python -m figures fig2`. They read runs, not models."""

import arith_lens as arith_lens  # before torch: it lets idle threads sleep
