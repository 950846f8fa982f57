"""Find, check, explain and improve the parts of a language model that do arithmetic.

After "Interpreting and Improving Large Language Models in Arithmetic Calculation"
(Zhang et al., ICML 2024, arXiv 2409.01659). The public names are in `__init__.pyi`. Importing
this package imports no other module of it: each name is imported on its first use.

Idle OpenMP threads sleep instead of spinning: a spinning thread takes the processor from the other
threads. PyTorch reads the policy when it is imported, so it is set here. A value of the user's own
wins.
"""

import os

import lazy_loader

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
