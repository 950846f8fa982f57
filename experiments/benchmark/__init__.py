"""How fast is path patching, and how does its cost grow? `python -m experiments benchmark`.

Everything is measured on random LLaMAs and random prompts, so that nothing is downloaded: the
same experiment in several ways (`rivals`), its growth with layers, heads, tokens and pairs
(`growth`), its memory (`memory`), and what a perfect sweep would take (`floor`).
"""
