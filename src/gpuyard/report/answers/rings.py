"""Answer of `gpuyard topo rings`: a broadcast and an all-reduce over a ring, step by step."""

from collections.abc import Sequence
from dataclasses import asdict

from gpuyard.draw.rings import draw_schedule_svg
from gpuyard.predictor.explain.rings import Schedule
from gpuyard.report.answer import Answer, Drawing, Part, RendererOnly, Sentence, Table
from gpuyard.units import format_byte_rate, format_bytes, format_seconds


def rings_answer(
    schedules: Sequence[Schedule], size_bytes: float, bytes_per_second: float
) -> Answer:
    """Show the steps of every schedule, and compare their times."""
    members = schedules[0].members
    title = (
        f"{format_bytes(size_bytes)} over a ring of {members} GPUs, links of "
        f"{format_byte_rate(bytes_per_second)}"
    )
    parts: list[Part] = [_build_steps(schedule) for schedule in schedules]
    rows = [[s.name, s.formula, str(len(s.steps)), format_seconds(s.seconds)] for s in schedules]
    parts.append(Table("Times", ("collective", "formula", "steps", "time"), rows))
    whole = size_bytes / bytes_per_second
    parts.append(
        Sentence(
            f"N/B is {format_seconds(whole)}. In many small pieces, a broadcast approaches it however many GPUs there "
            f"are; an all-reduce approaches twice as much. Latency per step is left out; gpuyard predict adds it."
        )
    )
    pages = [Drawing(draw_schedule_svg(schedule)) for schedule in schedules]
    parts.append(RendererOnly("page", pages))
    document = {
        "members": members,
        "size_bytes": size_bytes,
        "bytes_per_second": bytes_per_second,
        "schedules": [asdict(s) | {"seconds_per_step": s.seconds_per_step} for s in schedules],
    }
    return Answer(parts, document, title=title, verb="topo rings", rows="schedules")


def _build_steps(schedule: Schedule) -> Table:
    """Build a table with a column per link: the number of the part that it carries, with + if it is added."""
    links = sorted({(send.source, send.target) for step in schedule.steps for send in step})
    rows = []
    for number, step in enumerate(schedule.steps):
        carried = {
            (send.source, send.target): f"{'+' if send.adds else ''}{send.part + 1}"
            for send in step
        }
        elapsed = format_seconds((number + 1) * schedule.seconds_per_step)
        rows.append([str(number + 1), *(carried.get(link, "") for link in links), elapsed])
    columns = ("step", *(f"{a}→{b}" for a, b in links), "done after")
    return Table(f"{schedule.name}: part on each link", columns, rows)
