"""Benchmarks through EleutherAI's lm-evaluation-harness, on models with or without hooks.

`evaluate` asks the questions. `EvaluationResult` has the outcome of each question. The harness
(extra `evaluation`) makes the prompts, filters the answers and scores them. The models are ours, so
hooks can act. Choices and limits are in `docs/benchmarks.md`.
"""

from arith_lens.evaluation.evaluating import EvaluationResult as EvaluationResult
from arith_lens.evaluation.evaluating import evaluate as evaluate
