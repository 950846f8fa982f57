"""Arrays with named axes in, pictures out: plotly figures and inline SVG.

Nothing here knows models or methods, and plotly is imported only when a figure is drawn.
"""

from arith_lens.plotting.cells import Matrix as Matrix
from arith_lens.plotting.cells import matrix_panels as matrix_panels
from arith_lens.plotting.curves import CurvePanel as CurvePanel
from arith_lens.plotting.curves import Line as Line
from arith_lens.plotting.curves import Point as Point
from arith_lens.plotting.curves import curve_panels as curve_panels
from arith_lens.plotting.dots import DotAxis as DotAxis
from arith_lens.plotting.dots import DotPanel as DotPanel
from arith_lens.plotting.dots import Dots as Dots
from arith_lens.plotting.dots import dot_panels as dot_panels
from arith_lens.plotting.export import FROM_FOLDER as FROM_FOLDER
from arith_lens.plotting.export import ExportError as ExportError
from arith_lens.plotting.export import as_rectangles as as_rectangles
from arith_lens.plotting.export import browser_path as browser_path
from arith_lens.plotting.export import chart_html as chart_html
from arith_lens.plotting.export import compressed as compressed
from arith_lens.plotting.export import library as library
from arith_lens.plotting.export import packed_library as packed_library
from arith_lens.plotting.export import save as save
from arith_lens.plotting.export import save_pictures as save_pictures
from arith_lens.plotting.export import write_libraries as write_libraries
from arith_lens.plotting.heatmap import Grid as Grid
from arith_lens.plotting.heatmap import add_grid as add_grid
from arith_lens.plotting.heatmap import as_image as as_image
from arith_lens.plotting.heatmap import heatmap as heatmap
from arith_lens.plotting.heatmap import svg_heatmap as svg_heatmap
from arith_lens.plotting.heatmap import svg_lines as svg_lines
from arith_lens.plotting.labels import Box as Box
from arith_lens.plotting.markup import document as document
from arith_lens.plotting.markup import render as render
from arith_lens.plotting.page import plain as plain
from arith_lens.plotting.page import visible as visible
from arith_lens.plotting.page import with_notes as with_notes
from arith_lens.plotting.page import without_notes as without_notes
from arith_lens.plotting.panels import PANEL_SPAN as PANEL_SPAN
from arith_lens.plotting.panels import ColourScale as ColourScale
from arith_lens.plotting.panels import Mark as Mark
from arith_lens.plotting.panels import Panel as Panel
from arith_lens.plotting.panels import panels as panels
from arith_lens.plotting.steps import Steps as Steps
from arith_lens.plotting.steps import step_panels as step_panels
from arith_lens.plotting.style import COLOURS as COLOURS
from arith_lens.plotting.style import NOTE as NOTE
from arith_lens.plotting.style import PALE as PALE
from arith_lens.plotting.style import Figure as Figure
from arith_lens.plotting.style import Number as Number
from arith_lens.plotting.style import colour_at as colour_at
from arith_lens.plotting.style import palette as palette
from arith_lens.plotting.style import symmetric_limit as symmetric_limit
from arith_lens.plotting.style import tint as tint
from arith_lens.plotting.widths import Width as Width
from arith_lens.plotting.widths import drawn_for as drawn_for
