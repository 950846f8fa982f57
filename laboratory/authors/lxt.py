"""AttnLRP by its authors: `lxt`, from github.com/rachtibat/LRP-eXplains-Transformers.

It patches Transformers' classes for good, so that nothing else may run in its process.
"""

import importlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from laboratory.authors.exchange import Result, Task, llama_scores, result_of

METHOD, PACKAGE, DISTRIBUTION = "attn_lrp", "lxt", "lxt"


def results(task: Task, version: str) -> Iterator[Result]:
    """AttnLRP in its efficient form, gradient times input."""
    patches: Any = importlib.import_module("lxt.efficient.models.llama")
    for target, patch in patches.attnLRP.items():
        patch(target)
    compute = partial(llama_scores, task.llama(), task)
    yield result_of("attn_lrp", "lxt", compute, task, version=version)
