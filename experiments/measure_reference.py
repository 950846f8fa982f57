"""What can a reference model do? The figures of its model card, measured anew.

Writes `figures.json` beside the weights and the table in the card's README.md.
"""

import json
from pathlib import Path

import tyro

from arith_lens.reference.measure import figures, load_plain, rows

START, END = "<!-- figures -->", "<!-- end of figures -->"


def main(folder: Path = Path("arith_lens/reference/reference")) -> None:
    """Measure and write.

    Args:
        folder: the model, in Hugging Face format, with its README.md.
    """
    model, tokenizer = load_plain(folder)
    measured = figures(model, tokenizer)
    (folder / "figures.json").write_text(json.dumps(measured, indent=1) + "\n")
    table = "\n".join(["| task | wanted | measured |", "| --- | --- | --- |", *rows(measured)])
    card = folder / "README.md"
    before, _, rest = card.read_text().partition(START)
    _, _, after = rest.partition(END)
    card.write_text(f"{before}{START}\n{table}\n{END}{after}")
    print(table)


if __name__ == "__main__":
    tyro.cli(main, prog="python -m experiments.measure_reference", description=__doc__)
