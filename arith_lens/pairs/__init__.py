"""Prompt pairs: text to aligned tokens, and what each token is for.

`prompt_pairs` is the value that every method takes; `sampling` makes it from the templates,
`correctness` asks the model which pairs to keep, `tokens` and `wordings` ask the tokenizer,
`files` reads and writes, `show` prints.
"""

from arith_lens.pairs.correctness import keep_correct as keep_correct
from arith_lens.pairs.prompt_pairs import PromptPairs as PromptPairs
from arith_lens.pairs.prompt_pairs import Role as Role
from arith_lens.pairs.sampling import sample_pairs as sample_pairs
from arith_lens.pairs.selection import Selection as Selection
