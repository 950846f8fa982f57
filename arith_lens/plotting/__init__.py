"""Arrays with named axes in, pictures out: plotly figures and inline SVG.

Nothing here knows models or methods, and plotly is imported only when a figure is drawn.
"""

from arith_lens.plotting.export import ExportError as ExportError
from arith_lens.plotting.export import save as save
from arith_lens.plotting.heatmap import heatmap as heatmap
from arith_lens.plotting.heatmap import svg_heatmap as svg_heatmap
from arith_lens.plotting.layout import Mark as Mark
from arith_lens.plotting.layout import Panel as Panel
from arith_lens.plotting.panels import panels as panels
from arith_lens.plotting.style import NOTE as NOTE
from arith_lens.plotting.style import Figure as Figure
from arith_lens.plotting.style import colour_at as colour_at
from arith_lens.plotting.style import symmetric_limit as symmetric_limit
