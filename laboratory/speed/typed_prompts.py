"""How fast is the explorer's graph of a typed prompt? The first of a process, and later ones."""

import time
from statistics import median

from arith_lens import load_model
from arith_lens.exploration import ExplorerServer, finished
from laboratory.speed.measure import Cell, Column, SpeedTable

MODELS = ("reference", "reference-mistral")
PROMPT = "{} plus {} equals to "
TYPED_COLUMNS = {
    "model": Column("model"),
    "first, seconds of the processor": Column("first", ".2f"),
    "later, median": Column("later", ".2f"),
    "later, slowest": Column("slowest", ".2f"),
}


def typed_table(rounds: int) -> SpeedTable:
    """Seconds of processor time from a typed prompt to its map and its graph, by model.

    The first model's first prompt also pays for what Python and torch do once per process.

    Args:
        rounds: later prompts, of each of which the time counts.
    """
    return SpeedTable([_row(name, rounds) for name in MODELS])


def _row(name: str, rounds: int) -> dict[str, Cell]:
    server = ExplorerServer(load_model(name), {})
    spent = [_spent(server, 1 + number % 4) for number in range(1 + rounds)]
    first, *later = spent
    return {"model": name, "first": first, "later": median(later), "slowest": max(later)}


def _spent(server: ExplorerServer, b: int) -> float:
    reference = PROMPT.format(4, b)
    request = {
        "kind": "prompt",
        "reference": reference,
        "counterfactual": reference.replace("plus", "void"),
        "answer": str(4 + b),
    }
    start = time.process_time()
    finished(server.respond(request))
    return time.process_time() - start
