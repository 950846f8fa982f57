"""The worked examples that stand before a word problem."""

from pathlib import Path

import lm_eval
import yaml


def worked_examples() -> list[dict[str, str]]:
    """The eight of Wei et al. (2022) that are usual for all four word problem benchmarks.

    `question` and `target`; read from the harness, whose task gsm8k_cot has them.
    """
    path = Path(lm_eval.__file__).parent / "tasks" / "gsm8k" / "gsm8k-cot.yaml"
    config = yaml.safe_load(path.read_text(encoding="utf-8"))
    return config["fewshot_config"]["samples"]
