"""Plugs and sockets: their faces, what they carry and what they fit."""

from collections.abc import Sequence

from gpuyard.catalog.facility import Plug
from gpuyard.draw.plugs import plug_svg, plug_terminal
from gpuyard.report.answer import Answer, Column, Drawing, Drawings, Only, Part, Sentence, Table

_NOT_TO_WIRE_FROM = (
    "The faces show where the holes are and which one is earth; they are no drawings to wire from."
)


def plugs_answer(rows: Sequence[Plug], *, alone: bool) -> Answer:
    """A table with each face; on a page the faces are drawn. `alone` is one plug that was asked for."""
    columns = ("name", "id", "ratings", Column("use", 1), "fits")
    title = f"Plugs and sockets, seen from the front: {len(rows)}"
    drawn: list[Part] = [
        Drawings([Drawing(plug_svg(row), caption=row.name) for row in rows]),
        Table("Ratings", columns, [_cells(row, ", ") for row in rows]),
        Sentence(_NOT_TO_WIRE_FROM, "quiet"),
    ]
    printed = Table(
        title,
        ("face", *columns),
        [["\n".join(plug_terminal(row)), *_cells(row, "\n")] for row in rows],
    )
    documents = [row.model_dump(mode="json") | {"svg": plug_svg(row)} for row in rows]
    return Answer(
        [Only("terminal", [printed]), Only("page", drawn)],
        documents[0] if alone else documents,
        title="Plugs and sockets",
        verb="facility plugs",
    )


def _cells(row: Plug, between: str) -> list[str]:
    amps = [
        f"{value:g} A {where}"
        for value, where in ((row.amps_iec, "IEC"), (row.amps_north_america, "North America"))
        if value
    ]
    ratings = between.join([row.poles, f"{row.volts:g} V", *amps])
    return [row.name, row.id, ratings, row.use, between.join(row.mates)]
