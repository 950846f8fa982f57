"""Does tuning the heads that calculate help, and what does it cost elsewhere?

`__main__` is the command, `plan` fills in the settings and prints them, `training` does a training.
"""
