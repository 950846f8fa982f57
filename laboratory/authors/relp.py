"""RelP by its authors: their fork of TransformerLens, from github.com/FarnoushRJ/RelP."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import transformers

from laboratory.authors.exchange import Result, Task, hooked_scores, result_of

METHOD, PACKAGE, DISTRIBUTION = "relp", "transformer_lens.lrp_utils", "transformer-lens"
transformers.TRANSFORMERS_CACHE = ""  # pyright: ignore[reportAttributeAccessIssue]
"""Their fork reads this name, which Transformers 5 no longer has; nothing here uses the value."""
RULES: dict[str, Any] = {
    "use_lrp": True,
    "LRP_rules": ["LN-rule", "Identity-rule", "Half-rule"],
}
OPTIONAL = RULES | {"LRP_rules": [*RULES["LRP_rules"], "AH-rule"]}


def results(task: Task, version: str) -> Iterator[Result]:
    """Rules in the configuration at construction; after loading, as the README says; and with
    attention weights held."""
    late = task.hooked()
    for name, value in RULES.items():
        setattr(late.cfg, name, value)
    for method, how, model in (
        ("relp", "rules set at construction", task.hooked(RULES)),
        ("relp", "rules set after loading", late),
        ("relp, weights", "with its AH-rule, set at construction", task.hooked(OPTIONAL)),
    ):
        compute = partial(hooked_scores, model, task)
        yield result_of(method, f"RelP, {how}", compute, task, version=version)
