"""Does tuning the heads that calculate help, and what does it cost elsewhere?

`__main__` is the command; `settings` says what is tuned, `tasks` on what and what is asked,
`training` does one training, `workers` does many side by side.
"""
