"""The page and the widget of the explorer: linked pictures of a model's parts, from tables.

This package shows tables and knows no model. `arith_lens.exploration` computes them. One JavaScript
file and one style sheet draw the widget, the page and the report's tab.
"""

from arith_lens.explorer_page.explorer import CODE as CODE
from arith_lens.explorer_page.explorer import TABLES as TABLES
from arith_lens.explorer_page.explorer import Explorer as Explorer
from arith_lens.explorer_page.explorer import SetFacts as SetFacts
from arith_lens.explorer_page.explorer import Tables as Tables
from arith_lens.explorer_page.explorer import packed as packed
from arith_lens.explorer_page.explorer import unpacked as unpacked
