"""The settings of experiments. Nothing here imports PyTorch, so that help and refusals are quick.

The docstring of a class is the help of its command, that of a field the help of its option.
"""
