"""The reference models of the project, and the questions of the closed world they were trained on.

`reference` (LLaMA architecture) is in the folder of this name, in plain Hugging Face format, with
its model card. `sets` has the world's frozen tuning, validation and test sets.
"""
