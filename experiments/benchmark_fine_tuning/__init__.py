"""What does precise fine-tuning cost? `python -m experiments benchmark_fine_tuning`.

On random LLaMAs and random tokens: full fine-tuning, LoRA of as many parameters and precise
fine-tuning by the library's own training path (`steps`), beside the operations that each needs at
least (`flops`), and their memory (`memory`).
"""
