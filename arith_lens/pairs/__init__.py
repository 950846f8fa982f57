"""Prompt pairs: text to aligned tokens, and what each token is for.

`prompt_pairs` is the value that every method takes; `sampling` makes it: `supply` holds what a
template can give (`wordings`, `stories`), `counterfactuals` draws what stands against it. `tokens`
asks the tokenizer, `correctness` the model, `checks` whether pairs fit a model; `inventory` counts,
`files` reads and writes, `show` prints.
"""

from arith_lens.pairs.checks import check_pairs as check_pairs
from arith_lens.pairs.correctness import keep_correct as keep_correct
from arith_lens.pairs.inventory import TemplateFacts as TemplateFacts
from arith_lens.pairs.inventory import template_facts as template_facts
from arith_lens.pairs.prompt_pairs import PromptPairs as PromptPairs
from arith_lens.pairs.roles import Role as Role
from arith_lens.pairs.sampling import sample_pairs as sample_pairs
from arith_lens.pairs.selection import Selection as Selection
