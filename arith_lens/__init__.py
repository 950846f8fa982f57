"""Find, check, explain and improve the parts of a language model that do arithmetic.

After "Interpreting and Improving Large Language Models in Arithmetic Calculation"
(Zhang et al., ICML 2024, arXiv 2409.01659). The public names are in `__init__.pyi`. Importing
this package imports no other module of it: each name is imported on its first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
