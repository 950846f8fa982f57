"""How fast are path patching and fine-tuning? Everything is measured on random LLaMAs.

Three commands, each with a table of every part: `python -m laboratory speed` (path patching in
several ways, its growth and memory), `speed_scale` (Figure 2's work at seven billion parameters)
and `speed_fine_tuning` (a training step by method). Nothing is downloaded.
"""
