"""Does path patching hold at seven billion parameters: time, matrix rate, memory?

`__main__` is the command; `weights` makes, stores and loads them; `work` does and times Figure 2's.
"""
