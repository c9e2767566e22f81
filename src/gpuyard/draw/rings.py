"""Draws the steps of a collective: a column per member, a row per step, and an arrow for every part that is sent."""

from gpuyard.draw.markup import element, format_points, render_drawing, text
from gpuyard.draw.palette import MANY_COLORS, MUTED
from gpuyard.predictor.explain.rings import Schedule, Send
from gpuyard.units import format_seconds

_LEFT, _TOP, _COLUMN, _ROW, _RIGHT = 120.0, 84.0, 92.0, 34.0, 40.0


def draw_schedule_svg(schedule: Schedule) -> str:
    """Return the drawing as an SVG file; an arrow to the left closes the ring."""
    height = _TOP + _ROW * (len(schedule.steps) + 0.5)
    width = max(_LEFT + _COLUMN * (schedule.members - 1) + _RIGHT, 440.0)
    title = f"{schedule.name}: {schedule.formula} = {format_seconds(schedule.seconds)}"
    parts = [text(title, 16, 28, size=15, bold=True)]
    for member in range(schedule.members):
        x = _LEFT + _COLUMN * member
        parts.append(text(f"GPU {member}", x, _TOP - 26, anchor="middle", bold=True))
        parts.append(element("line", x1=x, y1=_TOP - 18, x2=x, y2=height - 12, stroke="#d0d7de"))
    for number, sends in enumerate(schedule.steps):
        y = _TOP + _ROW * number
        elapsed = format_seconds((number + 1) * schedule.seconds_per_step)
        parts.append(text(f"{number + 1}", 16, y + 4, bold=True))
        parts.append(text(elapsed, 36, y + 4, fill=MUTED, size=11))
        parts += [_draw_send(send, y) for send in sends]
    about = f"{len(schedule.steps)} steps; every arrow is a part that one GPU sends to the next."
    return render_drawing(parts, width, height, title=title, about=about)


def _draw_send(send: Send, y: float) -> str:
    color = MANY_COLORS[send.part % len(MANY_COLORS)]
    start, end = _LEFT + _COLUMN * send.source, _LEFT + _COLUMN * send.target
    closes = send.target < send.source
    level = y + 12 if closes else y
    direction = -1 if closes else 1
    tip = end - 3 * direction
    line = element(
        "line", x1=start + 3 * direction, y1=level, x2=tip, y2=level, stroke=color,
        stroke_width=1.6, stroke_dasharray="4 3" if closes else None,
    )  # fmt: skip
    corners = [(tip, level), (tip - 7 * direction, level - 4), (tip - 7 * direction, level + 4)]
    head = element("polygon", points=format_points(corners), fill=color)
    label = f"+{send.part + 1}" if send.adds else str(send.part + 1)
    middle = end + 18 if closes else (start + end) / 2
    height = level - 2 if closes else level - 4
    return (
        line + head + text(label, middle, height, size=11, fill=color, anchor="middle", bold=True)
    )
