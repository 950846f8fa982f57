"""Find, check, explain and improve the parts of a language model that do arithmetic.

After "Interpreting and Improving Large Language Models in Arithmetic Calculation"
(Zhang et al., ICML 2024, arXiv 2409.01659). Importing this package imports nothing else: each
name below is fetched from its module when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arith_lens.answers import Answers as Answers
    from arith_lens.answers import Question as Question
    from arith_lens.answers import answer_questions as answer_questions
    from arith_lens.answers import load_questions as load_questions
    from arith_lens.attention import attention_by_role as attention_by_role
    from arith_lens.attention import attention_view as attention_view
    from arith_lens.benchmarks import load_records as load_records
    from arith_lens.benchmarks import parse_number as parse_number
    from arith_lens.benchmarks import refuse_overlap as refuse_overlap
    from arith_lens.benchmarks import training_set as training_set
    from arith_lens.claims import Claim as Claim
    from arith_lens.claims import Verdict as Verdict
    from arith_lens.claims import check_claims as check_claims
    from arith_lens.components import Head as Head
    from arith_lens.components import Mlp as Mlp
    from arith_lens.effects import ComponentEffects as ComponentEffects
    from arith_lens.effects import Effects as Effects
    from arith_lens.effects import compare as compare
    from arith_lens.effects import contrast as contrast
    from arith_lens.effects import key_heads as key_heads
    from arith_lens.effects import template_agreement as template_agreement
    from arith_lens.evaluation import EvaluationResult as EvaluationResult
    from arith_lens.evaluation import evaluate as evaluate
    from arith_lens.fine_tuning import Delta as Delta
    from arith_lens.fine_tuning import TuningResult as TuningResult
    from arith_lens.fine_tuning import fine_tune as fine_tune
    from arith_lens.fine_tuning import load_delta as load_delta
    from arith_lens.hooks import ablate_heads as ablate_heads
    from arith_lens.hooks import ablate_mlps as ablate_mlps
    from arith_lens.hooks import capture as capture
    from arith_lens.hooks import freeze as freeze
    from arith_lens.hooks import patch_heads as patch_heads
    from arith_lens.hooks import patch_mlps as patch_mlps
    from arith_lens.hooks import scale_heads as scale_heads
    from arith_lens.hooks import scale_mlps as scale_mlps
    from arith_lens.knockout import KnockoutCurve as KnockoutCurve
    from arith_lens.knockout import Outcomes as Outcomes
    from arith_lens.knockout import knock_out as knock_out
    from arith_lens.knockout import knockout_curve as knockout_curve
    from arith_lens.mediation import Mediation as Mediation
    from arith_lens.mediation import mediators as mediators
    from arith_lens.model import HookedModel as HookedModel
    from arith_lens.model import load_model as load_model
    from arith_lens.model import record as record
    from arith_lens.pairs import PromptPairs as PromptPairs
    from arith_lens.pairs import Role as Role
    from arith_lens.pairs import sample_pairs as sample_pairs
    from arith_lens.path_patching import path_patch as path_patch
    from arith_lens.path_patching import plan as plan
    from arith_lens.probes import logit_lens as logit_lens
    from arith_lens.probes import mlp_probe as mlp_probe
    from arith_lens.runs import load_run as load_run
    from arith_lens.runs import open_run as open_run
    from arith_lens.runs import run_table as run_table
    from arith_lens.stability import stability_of as stability_of
    from arith_lens.word_problems import gsm8k_pairs as gsm8k_pairs

_HOME = {
    "Answers": "answers",
    "Claim": "claims",
    "ComponentEffects": "effects",
    "Delta": "fine_tuning",
    "Effects": "effects",
    "EvaluationResult": "evaluation",
    "Head": "components",
    "HookedModel": "model",
    "KnockoutCurve": "knockout",
    "Mediation": "mediation",
    "Mlp": "components",
    "Outcomes": "knockout",
    "PromptPairs": "pairs",
    "Question": "answers",
    "Role": "pairs",
    "TuningResult": "fine_tuning",
    "Verdict": "claims",
    "ablate_heads": "hooks",
    "ablate_mlps": "hooks",
    "answer_questions": "answers",
    "attention_by_role": "attention",
    "attention_view": "attention",
    "capture": "hooks",
    "check_claims": "claims",
    "compare": "effects",
    "contrast": "effects",
    "evaluate": "evaluation",
    "fine_tune": "fine_tuning",
    "freeze": "hooks",
    "gsm8k_pairs": "word_problems",
    "key_heads": "effects",
    "knock_out": "knockout",
    "knockout_curve": "knockout",
    "load_delta": "fine_tuning",
    "load_model": "model",
    "load_questions": "answers",
    "load_records": "benchmarks",
    "load_run": "runs",
    "logit_lens": "probes",
    "mediators": "mediation",
    "mlp_probe": "probes",
    "open_run": "runs",
    "parse_number": "benchmarks",
    "patch_heads": "hooks",
    "patch_mlps": "hooks",
    "path_patch": "path_patching",
    "plan": "path_patching",
    "record": "model",
    "refuse_overlap": "benchmarks",
    "run_table": "runs",
    "sample_pairs": "pairs",
    "scale_heads": "hooks",
    "scale_mlps": "hooks",
    "stability_of": "stability",
    "template_agreement": "effects",
    "training_set": "benchmarks",
}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'arith_lens' has no attribute {name!r}")
    value = getattr(import_module(f"arith_lens.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOME))
