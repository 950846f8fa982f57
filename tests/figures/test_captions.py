"""Every metric can be drawn."""

from typing import get_args

from experiments.configs.shared import Metric
from figures.views import maps


def test_every_metric_has_a_title_of_its_colours() -> None:
    assert {*maps.COLOUR_TITLES} >= {*get_args(Metric)}
