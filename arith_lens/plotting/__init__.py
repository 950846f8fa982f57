"""Arrays with named axes in, pictures out: plotly figures and inline SVG.

Nothing here knows models or methods, and plotly is imported only when a figure is drawn.
"""

from arith_lens.plotting.bars import BarPanel as BarPanel
from arith_lens.plotting.bars import Bars as Bars
from arith_lens.plotting.bars import Steps as Steps
from arith_lens.plotting.bars import bar_panels as bar_panels
from arith_lens.plotting.bars import step_panels as step_panels
from arith_lens.plotting.curves import CurvePanel as CurvePanel
from arith_lens.plotting.curves import Line as Line
from arith_lens.plotting.curves import Point as Point
from arith_lens.plotting.curves import curve_panels as curve_panels
from arith_lens.plotting.export import ExportError as ExportError
from arith_lens.plotting.export import browser_path as browser_path
from arith_lens.plotting.export import save as save
from arith_lens.plotting.export import save_pictures as save_pictures
from arith_lens.plotting.heatmap import as_image as as_image
from arith_lens.plotting.heatmap import heatmap as heatmap
from arith_lens.plotting.heatmap import svg_heatmap as svg_heatmap
from arith_lens.plotting.heatmap import svg_lines as svg_lines
from arith_lens.plotting.matrices import Columns as Columns
from arith_lens.plotting.matrices import Grid as Grid
from arith_lens.plotting.matrices import Matrix as Matrix
from arith_lens.plotting.matrices import add_grid as add_grid
from arith_lens.plotting.matrices import matrix_panels as matrix_panels
from arith_lens.plotting.page import plain as plain
from arith_lens.plotting.page import without_notes as without_notes
from arith_lens.plotting.panels import Mark as Mark
from arith_lens.plotting.panels import Panel as Panel
from arith_lens.plotting.panels import panels as panels
from arith_lens.plotting.style import BLUE as BLUE
from arith_lens.plotting.style import DARK as DARK
from arith_lens.plotting.style import GREY as GREY
from arith_lens.plotting.style import NOTE as NOTE
from arith_lens.plotting.style import OCHRE as OCHRE
from arith_lens.plotting.style import PALE as PALE
from arith_lens.plotting.style import RED as RED
from arith_lens.plotting.style import RUST as RUST
from arith_lens.plotting.style import TEAL as TEAL
from arith_lens.plotting.style import VIOLET as VIOLET
from arith_lens.plotting.style import Figure as Figure
from arith_lens.plotting.style import Number as Number
from arith_lens.plotting.style import colour_at as colour_at
from arith_lens.plotting.style import symmetric_limit as symmetric_limit
from arith_lens.plotting.tokens import NextTokens as NextTokens
from arith_lens.plotting.tokens import Ranking as Ranking
from arith_lens.plotting.tokens import next_token_panels as next_token_panels
from arith_lens.plotting.tokens import visible as visible
from arith_lens.plotting.trails import Trail as Trail
from arith_lens.plotting.trails import TrailMark as TrailMark
from arith_lens.plotting.trails import trail_chart as trail_chart
