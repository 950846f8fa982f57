# %% [markdown]
# # Your own task
#
# Nothing in path patching is about arithmetic. This notebook finds the heads that answer `The
# letter after c is` with `d`, from a file of prompt pairs, checks that they matter, and draws a
# figure. Put your own file in its place, and your own model.

# %%
import json
import os
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: its idle threads sleep

import arith_lens as al
from arith_lens import plotting

MODEL = "reference"
PAIRS = Path("letters.jsonl")  # beside this notebook

model = al.load_model(MODEL)
n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)

# %% [markdown]
# ## The file
#
# A line a pair: the prompt that holds what you ask about, the same prompt without it, and the
# answer.

# %%
print(*PAIRS.read_text().splitlines()[:4], sep="\n")

# %% [markdown]
# **Choose the counterfactual with care: it decides what you find.** Here it is the same question
# about another letter. So every head that brings *which letter it is* to the answer is found, and
# a head that only knows that *a letter* is wanted is not, since both prompts want one.
#
# Two rules come from the method, and are checked with an error that says what to do:
#
# 1. *Both prompts have the same number of tokens*, since activations are moved token by token.
# 2. *The answer is one token.* It follows the prompt as it is written, here with a blank. Where a
#    word is several, its first token is the answer:

# %%
tuesday = {
    "reference": "After the day Monday comes",
    "counterfactual": "After the day Sunday comes",
    "answer": " Tuesday",
}
longer = tuesday | {"answer": " T", "counterfactual": "After the day Wednesday comes"}
for row in (tuesday, longer):
    try:
        al.PromptPairs.from_rows([row], model)
    except ValueError as error:
        print(error, end="\n\n")

# %% [markdown]
# A first token is a weaker question: words that begin alike cannot be told apart.

# %%
drawn = al.PromptPairs.from_jsonl(PAIRS, model)
pairs = al.keep_correct(model, drawn)
pairs

# %% [markdown]
# `keep_correct` kept the pairs whose reference the model answers right; the lines above say how
# many, and how often the counterfactual is still answered so (it should not be).
#
# ## Which heads?

# %%
effects = al.path_patch(model, pairs)
effects

# %%
mean, (low, high) = effects.heads.mean(), effects.heads.ci()
order = effects.heads.top(8)
for head in order[:5]:
    at = head.layer, head.index
    print(f"head {head!s:>5}  {mean[at]:+6.1%}   95% interval {low[at]:+.1%} to {high[at]:+.1%}")

# %% [markdown]
# Are they the heads of addition, which is a successor of a kind? Path patching answers that too.

# %%
sums = al.sample_pairs(model, "addition", n=54)
of_sums = al.path_patch(model, sums).heads
shared = [head for head in order if head in of_sums.top(8)]
print(f"{len(shared)} of the 8 strongest heads are among the 8 strongest of addition:", *shared)
print(f"drawn blindly, two sets of 8 share {8 * 8 / mean.numel():.1f} on average")

# %% [markdown]
# Mind the counterfactuals: for sums the *operator* was taken away, here *which letter* it is. A
# head that fetches what stands at some place could show in one and not in the other.
#
# ## Do they matter?
#
# Without them, how often is the letter right? Beside them as many heads at random, and the other
# way round: what do the heads of letters cost addition?

# %%
orders = {
    "by effect": order,
    **{f"random {s}": al.random_order(n_layers, n_heads, s) for s in range(4)},
}
curves = al.knockout_curves(model, pairs, orders, ks=range(9))
on_sums = al.knockout_curve(model, sums, order, ks=range(9))
print("letters, by effect:", curves["by effect"].drop(4).accuracy)
for name in list(orders)[1:]:
    print(f" letters, {name}:", curves[name].drop(4).accuracy)
print("      sums, the same:", on_sums.drop(4).accuracy)

# %% [markdown]
# The sums have templates, so they have a mean for each position. Pairs from a file have none: END
# gets END's mean, and all other tokens share one, which can be far from what the head writes there.
#
# ## A figure of your own
#
# The curves, and where the strongest heads look from the last token:

# %%
inks = plotting.COLOURS  # by meaning
figure = plotting.curve_panels(
    [
        plotting.CurvePanel(
            "Right answers without k heads",
            (
                *(
                    curves[name].line("at random" * (name == "random 0"), inks["control"])
                    for name in list(orders)[1:]
                ),
                on_sums.line("sums", inks["operand"]),
                curves["by effect"].line("letters", inks["verdict"]),
            ),
            y_range=(0, 104),
        )
    ],
    x_title="Heads knocked out, the strongest for letters first",
    unit="%",
    notes=[f"Model: {MODEL}; {len(pairs)} pairs of {PAIRS.name}, {len(sums)} sums. Bands: 95% "
           "intervals over prompts."],
)  # fmt: skip
figure

# %%
looks = al.patterns_of(model, [pairs.reference_text[0], pairs.reference_text[-1]], order[:4])
figure = plotting.matrix_panels(
    [
        plotting.Matrix(
            title=plotting.plain(f"“{prompt}”"),
            rows=looks.heads,
            columns=tuple(map(plotting.visible, tokens)),
            values=100 * w[:, -1].numpy(),
        )
        for prompt, tokens, w in zip(looks.prompts, looks.tokens, looks.weights, strict=True)
    ],
    colour_title="Attention",
)
figure

# %% [markdown]
# To keep it: `plotting.save(figure, "letters")` writes HTML that opens offline, PNG, SVG and PDF.
#
# ## Your own file
#
# This is how `letters.jsonl` was made. Any program, or an editor, will do.

# %%
ALPHABET = "abcdefghijklmnopqrstuvwxyz"
WORDINGS = (
    "After the letter {} comes",
    "The letter after {} is",
    "Q: What letter follows {}? A:",
    "{} is the letter before",
)
lines = [
    json.dumps(
        {
            "reference": wording.format(letter),
            "counterfactual": wording.format(ALPHABET[(i + 11) % 25]),
            "answer": f" {ALPHABET[i + 1]}",
        }
    )
    for wording in WORDINGS
    for i, letter in enumerate(ALPHABET[:-1])
]
print("the file is this, line for line:", lines == PAIRS.read_text().splitlines())

# %% [markdown]
# The map from the command line: `arith-lens map reference --pairs letters.jsonl`. What pairs may
# hold is in `docs/data.md`.
