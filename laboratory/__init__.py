"""For maintainers: how fast the project is, and how its reference models and test sets were made.

Nobody needs this to use arith_lens: it is not installed, and neither the library nor `experiments/`
nor `figures/` imports it. `python -m laboratory --help` lists the commands.

Idle OpenMP threads sleep instead of spinning: a spinning thread takes the processor from the other
work of the machine. The policy is read when torch is imported, so it is set before that. A value of
the user's own wins.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
