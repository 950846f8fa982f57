"""Benchmarks through EleutherAI's lm-evaluation-harness, on models with or without hooks.

`evaluate` asks, `EvaluationResult` keeps what was right, question by question. The harness (extra
`evaluation`) makes the prompts, filters the answers and counts; the models are ours, so that hooks
act while it asks. Choices and limits are in `docs/benchmarks.md`.
"""

from arith_lens.evaluation.evaluating import evaluate as evaluate
from arith_lens.evaluation.result import EvaluationResult as EvaluationResult
