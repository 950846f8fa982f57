"""Prompt pairs: text to aligned tokens, and what each token is for.

`prompt_pairs` is the value that every method takes, `fields` what it holds, and `sampling` makes
it. `chosen_problems` pairs problems that a method has chosen. `bare_tokens` checks tokens of one's
own. `references` has the prompts that a template can give, `story_words` the words of stories,
`examples` the solved problems before a prompt, `counterfactuals` the prompts without the
calculation. `tokens` calls the tokenizer; `correctness` calls the model, and records which pairs it
answers right. `files` reads and writes pairs as text and as datasets.
"""

from arith_lens.pairs.chosen_problems import WordedTemplate as WordedTemplate
from arith_lens.pairs.correctness import answer as answer
from arith_lens.pairs.correctness import check_kinds as check_kinds
from arith_lens.pairs.correctness import check_pairs as check_pairs
from arith_lens.pairs.correctness import keep_correct as keep_correct
from arith_lens.pairs.correctness import mistakes as mistakes
from arith_lens.pairs.fields import Selection as Selection
from arith_lens.pairs.prompt_pairs import PromptPairs as PromptPairs
from arith_lens.pairs.sampling import choose_templates as choose_templates
from arith_lens.pairs.sampling import sample_pairs as sample_pairs
from arith_lens.pairs.sampling import template_facts as template_facts
from arith_lens.pairs.story_words import shuffled as shuffled
from arith_lens.pairs.text_files import read_file as read_file
from arith_lens.pairs.tokens import NO_ANSWER as NO_ANSWER
from arith_lens.pairs.tokens import Role as Role
from arith_lens.pairs.tokens import UnfitTemplate as UnfitTemplate
from arith_lens.pairs.tokens import candidate_tokens as candidate_tokens
from arith_lens.pairs.tokens import continued as continued
from arith_lens.pairs.tokens import encode as encode
from arith_lens.pairs.tokens import pieces as pieces
from arith_lens.pairs.tokens import tokenizer_of as tokenizer_of
from arith_lens.pairs.tokens import tokens_after as tokens_after
