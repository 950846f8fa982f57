# %% [markdown]
# # Which parts of a language model calculate?
#
# Which attention heads and MLPs determine a small language model's answer to `3 + 5 = `? Would the
# answer survive without them? What do these heads look at, and in which layer does the answer
# appear? The method is that of *Interpreting and Improving Large Language Models in Arithmetic
# Calculation* (Zhang et al., ICML 2024).
#
# The model is SmolLM2 135M Instruct, a pretrained LLaMA, if you have it (`make smollm` downloads
# 98 MB), and otherwise `reference`, a small LLaMA that ships with this package. Without a GPU, all
# cells take some minutes. For **another model**, change `MODEL` and run all cells again.

# %%
import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: its idle threads sleep

import numpy as np

import arith_lens as al
from arith_lens import plotting
from arith_lens.attention import kinds_of
from arith_lens.knockout import (
    counterfactual_means,
    knockout_curves,
    knockout_hooks,
    matched_order,
    random_order,
)
from arith_lens.model.pretrained import pretrained_file
from arith_lens.next_tokens import next_tokens

try:
    pretrained_file("smollm2-135m")
    MODEL = "smollm2-135m"  # or "reference-mistral", a Hugging Face id, the folder of a checkpoint
except FileNotFoundError:
    MODEL = "reference"
OPERATION = "addition"  # or "subtraction", "multiplication"
N = 24  # distinct prompts; None takes all there are
FORM = {"templates": "symbols", "shots": 1}  # `3 + 5 = `, after one solved example

# %%
model = al.load_model(MODEL)
n_layers, n_heads = int(model.cfg.n_layers), int(model.cfg.n_heads)
print(f"{MODEL}: {n_layers} layers of {n_heads} heads, {n_layers * n_heads} heads in all")

# %% [markdown]
# What you find is true of this model, and says nothing about LLaMA-2, the paper's model.
#
# ## Two prompts, one difference
#
# To find what calculates, compare two prompts that differ in the calculation alone. The
# **reference** holds it; in the **counterfactual** the operator is a symbol that means no
# operation. Both have the same number of tokens, so that what the model does at a position in one
# can replace what it does there in the other. One solved example stands before each prompt:
# without it, SmolLM2 answers few of them right.

# %%
pairs = al.sample_pairs(model, OPERATION, n=N, **FORM)
pairs

# %% [markdown]
# Each token has a **role**, and a colour: the operands A and B, the operator, BOS at the
# beginning, and END, the last token, where the model says what comes next. The underlined tokens
# differ. Behind the arrow stands C, the right answer's token.
#
# Only prompts that the model answers right are kept (the lines above say how many). So nothing
# here is about the prompts that it gets wrong.
#
# ## Click first
#
# The explorer shows what the rest of this notebook computes step by step, while the notebook runs
# (`docs/explorer.md` has a picture of it). Choose a head or an MLP, and see what it looks at, what
# it writes and who feeds it. Knock heads out, and type prompts of your own.

# %%
explorer = al.explore(model, pairs, progress=False)
explorer

# %% [markdown]
# ## Path patching: what does the answer depend on?
#
# Run the model on the reference. Replace the output of one head by its output on the
# counterfactual, with all other heads held as they were. If the logit of C falls, that head had
# carried something of the calculation. One sweep does so for every head and MLP, exactly.

# %%
effects = al.path_patch(model, pairs)
effects

# %% [markdown]
# Rows are layers. Red: without what this component knew of the calculation, the right answer's
# logit falls. The same as a figure to zoom into, and to keep:

# %%
effects.heads.heatmap(title=f"{MODEL}, {OPERATION}: effect of each head on the logit of C")

# %% [markdown]
# Effects are kept for each pair. Intervals come from drawing the problems anew (bootstrap).

# %%
mean, (low, high) = effects.heads.mean(), effects.heads.ci()
for head in effects.heads.top(6):
    at = head.layer, head.index  # pyright: ignore
    print(f"head {head!s:>5}  {mean[at]:+6.1%}   95% interval {low[at]:+.1%} to {high[at]:+.1%}")

heads = al.key_heads(effects)  # mean effect below -5%
weakest = [head for head in heads if float(high[head.layer, head.index]) > -0.05]
print(f"\n{len(heads)} of {mean.numel()} heads are key heads (below -5%):", *heads)
print(f"{len(weakest)} of them only just: their interval reaches beyond -5%.", *weakest)

# %% [markdown]
# **What such a number means.** -10% says: with this head's output taken from the counterfactual,
# the logit of C falls by a tenth of what it was. **Where it misleads:**
#
# - A logit has no natural zero, so percentages of two models are not on one scale. Compare ranks.
# - The head is judged alone. Two heads that stand in for one another both look weak; knock them
#   out together to see it.
# - Here other heads are frozen and MLPs react (`via_mlps`, the paper's Appendix B).
#   `paths="direct"` and `"total"` answer other questions (`docs/path_patching.md`).
# - -5% is the paper's line, drawn for LLaMA-2. A model may have no head below it, and lose its
#   answers without a few heads all the same: see the knockout.
# - There are 36 one-digit sums: more prompts in one wording would be repeats, not evidence.
# - In many one-digit products and quotients the answer equals an operand, and a head that copies
#   passes for one that calculates: `pairs.filter(pairs.computed)` leaves those out.
#
# ## Knockout: is the answer lost without them?
#
# An effect on a logit need not change what the model says. So take heads out, the strongest first
# (their output is replaced by its mean over counterfactuals), and count right answers. The
# **controls** are as many heads at random, and other heads of the same layers (mean and range).

# %%
order = effects.heads.top(10)
controls = {f"random {seed}": random_order(n_layers, n_heads, seed) for seed in range(3)}
controls |= {f"same layers {s}": matched_order(order, n_layers, n_heads, s) for s in range(3)}  # pyright: ignore
curves = knockout_curves(model, pairs, {"by effect": order, **controls}, ks=range(0, 11, 2))
curves.plot()

# %%
print("by effect:", curves["by effect"].drop(6).accuracy)
for name in controls:
    print(f"{name:>13}:", curves[name].drop(6).accuracy)

# %% [markdown]
# The first line is what the six strongest heads cost; the others are six heads of a control each,
# with intervals. The order was found on the same prompts as the curve, which flatters it a little.
# And a head that is *needed* need not calculate: a head that fetches the operands is needed too.
#
# ## What do these heads look at?
#
# The weight that each head gives, from END, to the tokens of each role; a row sums to 1.

# %%
looks = al.attention_by_role(model, pairs, order[:6])  # pyright: ignore
looks

# %%
kinds = kinds_of(looks)
for head in order[:6]:
    print(
        f"head {head!s:>5} is an {kinds[str(head)]} head"
        if kinds[str(head)] != "other"
        else f"head {head!s:>5} is neither an operand head nor an operator head"
    )

# %% [markdown]
# By a stated rule: of the weight that does not rest on BOS, an *operand head* gives at least half
# to A and B, an *operator head* at least half to the operator. Attention is not use: a head may
# look at a token and take nothing from it. Patching says what is used.
#
# The patterns on **a prompt of your own**; click a head to see it large. (The view is a small
# program, so a notebook shows it only when it is trusted: run this cell, or *Trust Notebook*.)

# %%
MY_PROMPT = "4 + 3 = 7\n7 + 2 = "
al.attention_view(model, MY_PROMPT, order[:6])  # pyright: ignore

# %% [markdown]
# ## In which layer does the answer appear?
#
# At END, layer by layer: what each MLP **reads** and what it **writes**, compared (by cosine)
# with the direction of each number in the output vocabulary.

# %%
reads = al.mlp_probe(model, pairs)
writes = al.mlp_probe(model, pairs, read="write")
names = ("A", "B", "C", "other digits")
inks = [plotting.COLOURS[one] for one in ("operand", "operand", "answer", "control")]
layers = np.arange(n_layers)
figure = plotting.curve_panels(
    [
        plotting.CurvePanel(
            title,
            tuple(
                plotting.Line(layers, found.mean()[:, role].numpy(), name, ink,
                              low=found.ci()[0, :, role].numpy(),
                              high=found.ci()[1, :, role].numpy())
                for role, name, ink in zip((0, 1, 2, 4), names, inks, strict=True)
            ),
            y_title="Cosine" if found is reads else "",
        )
        for title, found in (("What the MLP reads", reads), ("What it writes", writes))
    ],
    x_title="Layer",
)  # fmt: skip
figure

# %% [markdown]
# All digits rise together where END merely expects *a* number, so look at A, B and C against the
# other digits. Nothing need read such a direction, and an early layer may hold a number in another
# form. The logit lens asks the same of the whole vocabulary: what would the model say if it
# stopped after this layer?

# %%
lens = al.logit_lens(model, pairs)
lens

# %%
rank = lens.mean()[:, 0]
first = next((layer for layer, r in enumerate(rank.tolist()) if r < 1.5), None)
print("first layer after which the mean rank of C is below 1.5 (1 is the likeliest):", first)

# %% [markdown]
# ## Your own prompts
#
# Any pair of prompts with the same number of tokens will do: a reference, a counterfactual in
# which what you ask about is missing, and the answer, one token. (From a file:
# `al.PromptPairs.from_jsonl("mine.jsonl", model)`; of tokens: `al.PromptPairs.from_tokens`.)

# %%
mine = al.PromptPairs.from_rows(
    [
        {"reference": f"4 + 3 = 7\n{a} + {b} = ", "counterfactual": f"4 + 3 = 7\n{a} # {b} = ",
         "answer": str(a + b)}
        for a, b in [(7, 2), (2, 5), (3, 1), (4, 4), (1, 6), (5, 3)]
    ],
    model,
)  # fmt: skip
mine

# %%
own = al.path_patch(model, mine)
shared = {*own.heads.top(6)} & {*effects.heads.top(6)}
print(
    f"of the six strongest heads of these {len(mine)} pairs, {len(shared)} are among the six above"
)
own.heads

# %% [markdown]
# What does the model say to a prompt of yours, with all its heads and without the six strongest?
# Such text has no mean of its own at each position, so each head gets one mean at all.

# %%
MY_PROMPTS = [MY_PROMPT, "The opposite of hot is"]
hooks = knockout_hooks(model, order[:6], counterfactual_means(model, pairs, order[:6]))
before, after = next_tokens(model, MY_PROMPTS), next_tokens(model, MY_PROMPTS, hooks=hooks)
before.to_dataframe().merge(after.to_dataframe(), on=["prompt", "rank"], suffixes=("", " without"))

# %% [markdown]
# One prompt is an anecdote: to claim that other abilities are spared, ask many (`make transfer`,
# `docs/knockout.md`).
#
# ## Larger models
#
# What would the sweep cost? `al.plan` says so without computing anything, and `al.load_model`
# takes `device="cuda"` and `dtype="bfloat16"`.

# %%
print(al.plan(model, pairs))

# %% [markdown]
# ## A circuit: who writes what the strongest parts read?
#
# An edge is a path from one component to an input of a later one, and from there to the answer:
# through the queries (q), the keys (k) or the values (v) of a head, or into an MLP. Here the
# counterfactual has other operands, so that only the numbers differ.

# %%
sums = al.sample_pairs(model, OPERATION, counterfactual="operands", n=12, **FORM)
parts = al.path_patch(model, sums, metric="digit_contrast")
receivers = [*parts.heads.top(3), *parts.mlps.top(1)]
edges = al.edge_effects(model, sums, receivers, metric="digit_contrast", group="head")
graph = al.circuit_graph(edges, parts)
small = graph.strongest(0.8)
print(f"{len(graph.edges)} of {graph.n_tested} edges have an interval that excludes 0")
print(f"{len(small.edges)} edges have 80% of the sizes; the three largest:")
for edge in small.edges.head(3).to_dict("records"):
    by = "" if edge["input"] == "mlp" else f" by {edge['input']}"
    interval = f"[{-edge['high']:.2f}, {-edge['low']:.2f}]"
    print(f"{edge['sender']} → {edge['receiver']}{by}: {-edge['mean']:.2f} {interval} logits")

# %%
small.figure(title="Addition, other operands", most=20)

# %% [markdown]
# Red edges help the answer. The numbers above are logits of C's lead over the other digits that
# the edge carries. A mouse over a line shows its interval. Whether such a graph suffices is
# another question: `make circuit` keeps it alone, beside random graphs (`docs/edges.md`).
#
# ## Where to go on
#
# - `your_own_task.ipynb`: the same for something that is not arithmetic, from a file of pairs.
# - `make fig2` … `make table5`: the paper's figures and tables for a model, kept as runs with
#   their provenance, so that nothing is computed twice (`README.md`).
# - `docs/path_patching.md`, `docs/knockout.md`, `docs/attention.md`, `docs/probes.md`: what
#   exactly is computed, and where each method misleads.
