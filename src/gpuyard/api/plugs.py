"""Plugs and sockets: a drawing of each face, their ratings, and what fits what."""

from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog.facility import plugs as table
from gpuyard.draw.plugs import draw_plug_svg, draw_plugs_svg
from gpuyard.report.answers.facility.plugs import plugs_answer


def plugs(name: str | None = None) -> Result[Row]:
    """Show one plug or socket, or all; `svg()` is the drawing."""
    if name is not None:
        plug = table().get(name)
        return Result(plugs_answer([plug], alone=True), draw=lambda: draw_plug_svg(plug))
    rows = list(table())
    answer = plugs_answer(rows, alone=False)
    return Result(answer, wrap(answer.document), draw=lambda: draw_plugs_svg(rows))
