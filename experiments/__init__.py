"""Questions, related ones in a module: `python -m experiments which_heads`. Each fills a run."""

from arith_lens.imports import without_collections as without_collections  # idle threads sleep
