"""What can a reference model do? The figures of its model card, measured anew.

Writes beside the weights `outcomes.json` (which questions were answered right), `figures.json` (the
shares) and the table in the card's README.md.
"""

import json
from pathlib import Path

import tyro

from arith_lens.reference.models import FIGURES, figures, load_plain, outcomes, pack, rows
from arith_lens.reference.sets import write_sets

START, END = "<!-- figures -->", "<!-- end of figures -->"


def main(
    folder: Path = Path("arith_lens/reference/reference"), *, write_world: bool = False
) -> None:
    """Measure and write.

    Args:
        folder: the model, in Hugging Face format, with its README.md.
        write_world: first write the world's frozen sets anew, from its code.
    """
    if write_world:
        write_sets()
    model, tokenizer = load_plain(folder)
    answered = {name: outcomes(model, tokenizer, name) for name in FIGURES}
    (folder / "outcomes.json").write_text(json.dumps(pack(answered), indent=1) + "\n")
    measured = figures(answered)
    (folder / "figures.json").write_text(json.dumps(measured, indent=1) + "\n")
    table = "\n".join(["| task | wanted | measured |", "| --- | --- | --- |", *rows(measured)])
    card = folder / "README.md"
    before, _, rest = card.read_text().partition(START)
    _, _, after = rest.partition(END)
    card.write_text(f"{before}{START}\n{table}\n{END}{after}")
    print(table)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments measure_reference", description=__doc__)
