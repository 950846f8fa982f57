"""What single neurons of MLPs do: their effects, their maps over problems, and tests of rules."""

from arith_lens.neurons.effects import neuron_effects as neuron_effects
