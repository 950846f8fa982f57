"""Paths between components: who writes what a head or an MLP reads, with exact effects.

`recording` runs both prompts at every position, `receivers` computes a head's output with one of
its inputs exchanged, `engine` makes one row per edge and certifies them, `effects` has the public
function. `composition` asks less: which share of a head's change a sender makes.
"""

from arith_lens.edges.composition import composition as composition
from arith_lens.edges.cost import plan_edges as plan_edges
from arith_lens.edges.effects import SUBSETS as SUBSETS
from arith_lens.edges.effects import EdgeReading as EdgeReading
from arith_lens.edges.effects import edge_effects as edge_effects
from arith_lens.edges.effects import edge_labels as edge_labels
from arith_lens.edges.effects import edge_settings as edge_settings
from arith_lens.edges.effects import shapley_shares as shapley_shares
from arith_lens.edges.engine import MLP_INPUT as MLP_INPUT
from arith_lens.edges.engine import EdgeSettings as EdgeSettings
from arith_lens.edges.engine import Group as Group
from arith_lens.edges.graph import CircuitGraph as CircuitGraph
from arith_lens.edges.graph import circuit_graph as circuit_graph
from arith_lens.edges.receivers import AttentionCode as AttentionCode
from arith_lens.edges.receivers import Receiver as Receiver
from arith_lens.edges.receivers import UnsupportedReceiver as UnsupportedReceiver
from arith_lens.edges.recording import EMBEDDINGS as EMBEDDINGS
from arith_lens.edges.recording import Changes as Changes
from arith_lens.edges.recording import Positions as Positions
