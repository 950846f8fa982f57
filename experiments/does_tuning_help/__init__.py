"""Does tuning the heads that calculate help, and what does it cost elsewhere?

`__main__` is the command, `plan` fills in the settings and prints them, `training` does a training,
`tuned` has the models that Table 1's precise trainings leave.
"""
