"""Figure 4: the likeliest next tokens before and after the key heads are knocked out.

Reads a run of `experiments/what_comes_instead.py` (the newest one of the model, or `--run PATH`)
and draws it without loading a model. For each kind, it shows the first prompt that is answered
right with every head in place. The small print has the share of right answers.
"""

import torch
from pandas import DataFrame, concat

from arith_lens import plotting
from arith_lens.next_tokens import NextTokens
from arith_lens.runs import Run
from experiments import results
from figures.common import Options, chosen_run
from figures.exhibit import Chart, command_for

KINDS = {
    "word_problem": "Word problems",
    "integers": "Three-digit sums",
    "time_span": "Time spans",
    "decimals": "Decimals",
}


def exhibits(options: Options) -> list[Chart]:
    """One prompt of each kind. Raises RunError if there is no run."""
    run = chosen_run(options, "what_comes_instead")
    return [
        Chart(
            name="fig4",
            title="Figure 4: the likeliest next tokens before and after the knockout",
            look=look(run),
            notes=notes(run),
            runs=(run,),
            numbers=numbers(run),
            figure=draw(run),
        )
    ]


def look(run: Run) -> str:
    """What to look for, and how often this run's model says a number at all."""
    parts = []
    for kind, title in KINDS.items():
        _, after, answers = read(run, kind)
        right = _share(after.ids[:, 0] == answers)
        numbers = [pieces[0].strip(" ▁Ġ").isdecimal() for pieces in after.pieces]
        parts.append(f"{title} {sum(numbers) / len(numbers):.0%} a number, {right} the right one")
    return (
        "What the model says in place of the answer (blue). In the paper it still says a number, "
        "but a wrong one: what is lost is the calculation, not the format. Here the likeliest "
        f"token after the knockout is: {'; '.join(parts)}."
    )


def draw(run: Run) -> plotting.Figure:
    """One row per kind of prompt, before on the left and after on the right."""
    parts = []
    for kind in KINDS:
        before, after, answers = read(run, kind)
        right = before.ids[:, 0] == answers
        if right.any():
            prompt = int(right.nonzero()[0])
            parts.append(
                plotting.NextTokens(
                    prompt=before.prompts[prompt],
                    before=_ranking(before, prompt),
                    after=_ranking(after, prompt),
                    answer=before.pieces[prompt][0],
                )
            )
    heads = results.NEXT_TOKENS.facts(run, "word_problem", "before")["heads"]
    return plotting.next_token_panels(
        parts,
        names=("all heads in place", f"{len(heads)} heads knocked out"),
        notes=notes(run),
    )


def notes(run: Run) -> list[str]:
    """How to read the figure, what it was made from, and how often the answer is right."""
    shares = []
    for kind, title in KINDS.items():
        before, after, answers = read(run, kind)
        share_before, share_after = (
            _share(tokens.ids[:, 0] == answers) for tokens in (before, after)
        )
        shares.append(f"{title}: {share_before} right before, {share_after} after")
    heads = results.NEXT_TOKENS.facts(run, "word_problem", "before")["heads"]
    return [
        f"Model: {run.config['model']}. Knocked out: "
        f"{', '.join(heads)}, the strongest by mean effect "
        "over the four operations, each replaced by its mean over counterfactuals.",
        "Of each kind, the first prompt drawn that is answered right with all heads in place. "
        "Blue: the right token.",
        f"First token of the answer, {run.config['prompts']} prompts a kind. "
        f"{'; '.join(shares[:2])};",
        f"{'; '.join(shares[2:])}.",
    ]


def read(run: Run, kind: str) -> tuple[NextTokens, NextTokens, torch.Tensor]:
    """The next tokens before and after, and the right tokens."""
    before, after = (results.NEXT_TOKENS.load(run, kind, when) for when in ("before", "after"))
    answers = results.NEXT_TOKENS.facts(run, kind, "before")["answers"]
    return before, after, torch.tensor(answers)


def numbers(run: Run) -> DataFrame:
    """The top five of every prompt, before and after."""
    tables = []
    for kind in KINDS:
        for when, tokens in zip(("before", "after"), read(run, kind)[:2], strict=True):
            table = tokens.to_dataframe()
            table.insert(0, "kind", kind)
            table.insert(1, "when", when)
            tables.append(table)
    return concat(tables, ignore_index=True)


def _ranking(tokens: NextTokens, prompt: int) -> plotting.Ranking:
    return plotting.Ranking(tokens.pieces[prompt], tokens.probabilities[prompt].double().numpy())


def _share(right: torch.Tensor) -> str:
    return f"{right.float().mean():.0%}"


main = command_for(exhibits)
