"""The reference models that ship with the project, and the closed world that they were trained on.

`reference` (LLaMA architecture) lies in the folder of that name in plain Hugging Face format, with
its model card; `sets` holds the world's frozen tuning, validation and test sets.
"""
