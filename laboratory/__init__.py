"""For maintainers: how fast the project is, and how its reference models and test sets were made.

Nobody needs this to use arith_lens: it is not installed, and neither the library nor `experiments/`
nor `figures/` imports it. `python -m laboratory --help` lists the commands.
"""

import arith_lens as arith_lens  # before torch: it lets idle threads sleep
