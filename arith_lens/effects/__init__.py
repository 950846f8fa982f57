"""What an intervention did at each component, pair by pair, with the statistics of it."""

from arith_lens.effects.comparison import BeforeAfter as BeforeAfter
from arith_lens.effects.comparison import StabilityError as StabilityError
from arith_lens.effects.comparison import agreement as agreement
from arith_lens.effects.comparison import compare as compare
from arith_lens.effects.comparison import contrast as contrast
from arith_lens.effects.comparison import stability_of as stability_of
from arith_lens.effects.comparison import template_agreement as template_agreement
from arith_lens.effects.component_effects import KEY as KEY
from arith_lens.effects.component_effects import ComponentEffects as ComponentEffects
from arith_lens.effects.component_effects import differs_from_zero as differs_from_zero
from arith_lens.effects.component_effects import effect_tables as effect_tables
from arith_lens.effects.component_effects import key_heads as key_heads
from arith_lens.effects.draws import crossed_draws as crossed_draws
from arith_lens.effects.draws import draws_of as draws_of
from arith_lens.effects.effects import HEAD_AXES as HEAD_AXES
from arith_lens.effects.effects import MLP_AXES as MLP_AXES
from arith_lens.effects.effects import Effects as Effects
from arith_lens.effects.effects import NoTemplates as NoTemplates
