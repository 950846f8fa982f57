"""Figure 4: the likeliest next tokens before and after the key heads are knocked out.

Reads a run of `experiments/what_comes_instead.py` (the newest one of the model, or `--run PATH`)
and draws it without loading a model. Each kind of prompt shows the first that was drawn and is
answered right with every head in place; the small print says how many of all are.
"""

import sys
from typing import Annotated

import torch
import tyro
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.next_tokens import NextTokens
from arith_lens.runs import Run, RunError
from figures.common import Options, chosen_run, stem_of, write

KINDS = {
    "word_problem": "Word problems",
    "integers": "Three-digit sums",
    "time_span": "Time spans",
    "decimals": "Decimals",
}


def main(options: Annotated[Options, tyro.conf.arg(name="")]) -> None:
    """Draw, and print what was written."""
    try:
        run = chosen_run(options, "what_comes_instead")
        figure, table = draw(run), numbers(run)
    except RunError as error:
        sys.exit(str(error))
    write(stem_of(options, run, "fig4"), table, figure, options.formats)


def draw(run: Run) -> plotting.Figure:
    """A row a kind of prompt, before on the left and after on the right."""
    parts, shares = [], []
    for kind, title in KINDS.items():
        before, after, answers = read(run, kind)
        right = before.ids[:, 0] == answers
        shares.append(
            f"{title}: {_share(right)} right before, {_share(after.ids[:, 0] == answers)} after"
        )
        if right.any():
            shown = int(right.nonzero()[0])
            parts.append(
                plotting.NextTokens(
                    prompt=before.prompts[shown],
                    before=_ranking(before, shown),
                    after=_ranking(after, shown),
                    answer=before.pieces[shown][0],
                )
            )
    heads = run.facts("word_problem-before")["heads"]
    return plotting.next_token_panels(
        parts,
        names=("all heads in place", f"{len(heads)} heads knocked out"),
        notes=[
            f"Model: {run.config['model']}. Knocked out: {', '.join(heads)}, the strongest by mean "
            "effect over the four operations, each replaced by its mean over counterfactuals.",
            "Of each kind, the first prompt drawn that is answered right with all heads in place. "
            "Blue: the right token.",
            f"First token of the answer, {run.config['prompts']} prompts a kind. "
            + "; ".join(shares[:2])
            + ";",
            "; ".join(shares[2:]) + ".",
        ],
    )


def read(run: Run, kind: str) -> tuple[NextTokens, NextTokens, torch.Tensor]:
    """What was said before and after, and the tokens that would have been right."""
    before, after = (
        NextTokens.from_arrays(run.load_arrays(f"{kind}-{when}")) for when in ("before", "after")
    )
    return before, after, torch.tensor(run.facts(f"{kind}-before")["answers"])


def numbers(run: Run) -> DataFrame:
    """The top five of every prompt, before and after."""
    tables = []
    for kind in KINDS:
        for when, said in zip(("before", "after"), read(run, kind)[:2], strict=True):
            table = said.to_dataframe()
            table.insert(0, "kind", kind)
            table.insert(1, "when", when)
            tables.append(table)
    return concat(tables, ignore_index=True)


def _ranking(said: NextTokens, prompt: int) -> plotting.Ranking:
    return plotting.Ranking(said.pieces[prompt], said.probabilities[prompt].double().numpy())


def _share(right: torch.Tensor) -> str:
    return f"{right.float().mean():.0%}"


if __name__ == "__main__":
    tyro.cli(main, prog="python -m figures.fig4", description=__doc__)
