"""What the explorer shows of a model, as tables: computed at once for a page, or click by click.

This package computes tables from a model. `arith_lens.explorer_page` shows them.
"""

from arith_lens.exploration.cost import MAP_SETTINGS as MAP_SETTINGS
from arith_lens.exploration.cost import page_flops as page_flops
from arith_lens.exploration.exploring import Exploration as Exploration
from arith_lens.exploration.exploring import ExplorerServer as ExplorerServer
from arith_lens.exploration.exploring import explore as explore
from arith_lens.exploration.exploring import explored as explored
from arith_lens.exploration.parts import head_parts as head_parts
from arith_lens.exploration.parts import mlp_parts as mlp_parts
from arith_lens.exploration.tables import finished as finished
from arith_lens.exploration.tables import sample_rows as sample_rows
from arith_lens.exploration.tables import selections as selections
