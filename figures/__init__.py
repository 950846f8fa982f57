"""Exhibits, related ones in a module: `python -m figures fig2`. They read runs, not models."""

from arith_lens.imports import without_collections as without_collections  # idle threads sleep
