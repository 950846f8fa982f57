"""What single neurons of MLPs do: their effects, their maps over problems, and tests of rules."""

from arith_lens.neurons.effects import neuron_effects as neuron_effects
from arith_lens.neurons.heuristics import HEURISTICS as HEURISTICS
from arith_lens.neurons.maps import NeuronMaps as NeuronMaps
from arith_lens.neurons.maps import neuron_maps as neuron_maps
from arith_lens.neurons.matching import HeuristicMatches as HeuristicMatches
from arith_lens.neurons.matching import match_heuristics as match_heuristics
from arith_lens.neurons.untrained import untrained_model as untrained_model
