"""What single neurons of MLPs do: their effects, their maps over problems, and tests of rules."""

from arith_lens.neurons.classes import ClassKnockouts as ClassKnockouts
from arith_lens.neurons.classes import class_knockouts as class_knockouts
from arith_lens.neurons.effects import neuron_effects as neuron_effects
from arith_lens.neurons.gradients import neuron_gradients as neuron_gradients
from arith_lens.neurons.heuristics import HEURISTICS as HEURISTICS
from arith_lens.neurons.heuristics import ProblemGrid as ProblemGrid
from arith_lens.neurons.maps import NeuronMaps as NeuronMaps
from arith_lens.neurons.maps import neuron_maps as neuron_maps
from arith_lens.neurons.matching import HeuristicMatches as HeuristicMatches
from arith_lens.neurons.matching import grid_of as grid_of
from arith_lens.neurons.matching import match_heuristics as match_heuristics
from arith_lens.neurons.matching import precision_at_k as precision_at_k
from arith_lens.neurons.matching import scoring_cells as scoring_cells
from arith_lens.neurons.untrained import untrained_model as untrained_model
