"""Plain Transformers, with torch's own hooks: gradients without any rule."""

from collections.abc import Iterator
from functools import partial

from laboratory.authors.exchange import Result, Task, llama_scores, result_of

METHOD, PACKAGE, DISTRIBUTION = "atp", "transformers", "transformers"


def results(task: Task, version: str) -> Iterator[Result]:
    """AtP."""
    compute = partial(llama_scores, task.llama(), task)
    code = "plain Transformers and torch's hooks"
    yield result_of("atp", code, compute, task, version=version)
