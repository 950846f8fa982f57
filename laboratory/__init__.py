"""For maintainers: how fast the project is, and how its reference models and test sets were made.

Nobody needs this to use arith_lens: it is not installed, and neither the library nor `experiments/`
nor `figures/` imports it. `python -m laboratory --help` lists the commands.
"""

from arith_lens.imports import without_collections as without_collections  # idle threads sleep
