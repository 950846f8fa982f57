"""How fast is the explorer's graph of a typed prompt? The first of a process, and later ones."""

import time
from statistics import median

from arith_lens import explore, load_model, sample_pairs
from arith_lens.exploration import finished
from arith_lens.explorer_page.explorer import Respond
from laboratory.speed.measure import Cell, Column, SpeedTable

MODELS = ("reference", "reference-mistral")
PROMPT = "{} plus {} equals to "
N_PAIRS = 9
TYPED_COLUMNS = {
    "model": Column("model"),
    "first, seconds of the processor": Column("first", ".2f"),
    "later, median": Column("later", ".2f"),
    "later, slowest": Column("slowest", ".2f"),
}


def typed_table(rounds: int) -> SpeedTable:
    """Seconds of processor time from a typed prompt to its map and its graph, by model.

    As in a notebook, the map of some pairs is there before the first prompt is typed.

    Args:
        rounds: later prompts, of each of which the time counts.
    """
    return SpeedTable([_row(name, rounds) for name in MODELS])


def _row(name: str, rounds: int) -> dict[str, Cell]:
    model = load_model(name)
    view = explore(model, sample_pairs(model, "addition", n=N_PAIRS, keep="all"), progress=False)
    assert view.respond is not None
    first, *later = [processor_seconds(view.respond, 1 + n % 4) for n in range(1 + rounds)]
    return {"model": name, "first": first, "later": median(later), "slowest": max(later)}


def processor_seconds(respond: Respond, b: int) -> float:
    """The time of one typed prompt."""
    reference = PROMPT.format(4, b)
    request = {
        "kind": "prompt",
        "reference": reference,
        "counterfactual": reference.replace("plus", "void"),
        "answer": str(4 + b),
    }
    start = time.process_time()
    finished(respond(request))
    return time.process_time() - start
