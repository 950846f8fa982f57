"""Questions, related ones in a module: `python -m experiments which_heads`. Each fills a run.

Idle OpenMP threads sleep instead of spinning: a spinning thread takes the processor from the other
work of the machine. The policy is read when torch is imported, so it is set before that. A value of
the user's own wins.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
