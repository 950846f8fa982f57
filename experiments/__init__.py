"""Questions, related ones in a module: `python -m experiments which_heads`. Each fills a run."""

import arith_lens as arith_lens  # before torch: it lets idle threads sleep
