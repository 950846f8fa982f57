"""Knockout: how often is the answer still right if components are replaced by their mean?

This follows the paper's sections 4.2 and 5.1 (Figures 3 and 4, Tables 3 and 4). The output of
chosen heads and MLPs is replaced by its mean over counterfactual prompts, and the right answers are
counted. Choices and limits are in `docs/knockout.md`.
"""

from arith_lens.knockout.circuit_files import INPUT as INPUT
from arith_lens.knockout.circuit_files import LOGITS as LOGITS
from arith_lens.knockout.circuit_files import CircuitFile as CircuitFile
from arith_lens.knockout.circuit_files import Scored as Scored
from arith_lens.knockout.circuit_files import node_name as node_name
from arith_lens.knockout.circuits import FRACTIONS as FRACTIONS
from arith_lens.knockout.circuits import CircuitCurve as CircuitCurve
from arith_lens.knockout.circuits import circuit_curve as circuit_curve
from arith_lens.knockout.circuits import keep_only as keep_only
from arith_lens.knockout.curves import KnockoutCurve as KnockoutCurve
from arith_lens.knockout.curves import KnockoutCurves as KnockoutCurves
from arith_lens.knockout.engine import engine_of as engine_of
from arith_lens.knockout.knock_out import knock_out as knock_out
from arith_lens.knockout.knock_out import knockout_curve as knockout_curve
from arith_lens.knockout.knock_out import knockout_curves as knockout_curves
from arith_lens.knockout.knock_out import knockout_hooks as knockout_hooks
from arith_lens.knockout.means import NoAlignedPrompt as NoAlignedPrompt
from arith_lens.knockout.means import counterfactual_means as counterfactual_means
from arith_lens.knockout.orders import GreedyMask as GreedyMask
from arith_lens.knockout.orders import grow_greedily as grow_greedily
from arith_lens.knockout.orders import half_of_problems as half_of_problems
from arith_lens.knockout.orders import halves as halves
from arith_lens.knockout.orders import mask_greedily as mask_greedily
from arith_lens.knockout.orders import matched_order as matched_order
from arith_lens.knockout.orders import random_order as random_order
from arith_lens.knockout.orders import shrink_greedily as shrink_greedily
from arith_lens.knockout.outcomes import Outcomes as Outcomes
from arith_lens.knockout.outcomes import drop as drop
from arith_lens.knockout.sets import keep_each as keep_each
from arith_lens.knockout.settings import Knockout as Knockout
