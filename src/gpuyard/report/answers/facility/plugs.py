"""The answer for plugs and sockets: their faces, ratings, and matches."""

from collections.abc import Sequence

from gpuyard.catalog.facility import Plug
from gpuyard.draw.plugs import draw_plug_lines, draw_plug_svg
from gpuyard.report.answer import (
    Answer,
    Column,
    Drawing,
    Drawings,
    Part,
    RendererOnly,
    Sentence,
    Table,
)

_WIRING_NOTE = "The faces show the positions of the contacts and of the ground; don't use them as wiring diagrams."


def plugs_answer(rows: Sequence[Plug], *, alone: bool) -> Answer:
    """Return a table of the plugs; a page has drawings. `alone` means that the user named one plug."""
    columns = ("name", "id", "ratings", Column("use", 1), "fits")
    title = f"Plugs and sockets, seen from the front: {len(rows)}"
    drawn: list[Part] = [
        Drawings([Drawing(draw_plug_svg(row), caption=row.name) for row in rows]),
        Table("Ratings", columns, [_format_plug(row, ", ") for row in rows]),
        Sentence(_WIRING_NOTE, "quiet"),
    ]
    printed = Table(
        title,
        ("face", *columns),
        [["\n".join(draw_plug_lines(row)), *_format_plug(row, "\n")] for row in rows],
    )
    documents = [row.model_dump(mode="json") | {"svg": draw_plug_svg(row)} for row in rows]
    return Answer(
        [RendererOnly("terminal", [printed]), RendererOnly("page", drawn)],
        documents[0] if alone else documents,
        title="Plugs and sockets",
        verb="facility plugs",
    )


def _format_plug(row: Plug, separator: str) -> list[str]:
    amps = [
        f"{value:g} A {region}"
        for value, region in ((row.amps_iec, "IEC"), (row.amps_north_america, "North America"))
        if value
    ]
    ratings = separator.join([row.poles, f"{row.volts:g} V", *amps])
    return [row.name, row.id, ratings, row.use, separator.join(row.mates)]
