"""The explorer: click a head or an MLP, and see what it does.

Reads a run of `experiments/what_does_each_part_do.py` (the newest of the model, or `--run PATH`)
and writes one page without loading a model. It needs no network. In a notebook,
`al.explore(model, pairs)` shows the same and computes on a click.
"""

from pandas import concat

from arith_lens.explorer_page import Explorer
from experiments import results
from figures.common import TableOptions, chosen_run, sample_size
from figures.exhibit import Interactive


def exhibits(options: TableOptions) -> list[Interactive]:
    """The explorer of a run. Raises RunError if there is no run."""
    run = chosen_run(options, "what_does_each_part_do")
    names = results.EXPLORATION.labels(run)
    names = sorted(names, key=lambda name: "-" in name)  # the operations first
    explorations = {name: results.EXPLORATION.load(run, name) for name in names}
    sizes = [f"{name}: {sample_size(results.EXPLORATION.facts(run, name))}" for name in names]
    tables = [
        exploration.to_dataframe().assign(prompts=name)
        for name, exploration in explorations.items()
    ]
    sets = {
        name.replace("-", ", ").replace("_", " "): (exploration.facts, exploration.tables)
        for name, exploration in explorations.items()
    }
    return [
        Interactive(
            name="explorer",
            title="Explorer: what each head and each MLP does",
            look="Click a cell of the map. Which tokens does the head look at, which digits does "
            "it write, and which MLPs carry its effect? Then knock the strongest heads out, one "
            "after another, and read what the model answers.",
            notes=[
                f"Model: {run.config['model']}. {'; '.join(sizes)}.",
                "Effects and attention are means over all of them. Patterns, digits and knockouts "
                "are of a sample of prompts, which the page lists.",
            ],
            runs=(run,),
            numbers=concat(tables, ignore_index=True),
            view=Explorer(sets, f"Explorer: {run.config['model']}"),
        )
    ]
