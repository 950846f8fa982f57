"""Questions, related ones in a module: `python -m experiments which_heads`. Each fills a run."""

from contextlib import suppress

with suppress(ModuleNotFoundError):  # `make help` works before `make setup`
    from arith_lens.imports import without_collections as without_collections  # idle threads sleep
