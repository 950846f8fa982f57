"""plotly, which draws the figures: an extra, so that the methods need no drawing library."""

try:
    from plotly import graph_objects as go
    from plotly.offline import get_plotlyjs
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "expected plotly, which draws figures, found none installed; install the extra: "
        "pip install 'arith-lens[drawing]'"
    ) from error

__all__ = ["get_plotlyjs", "go"]
