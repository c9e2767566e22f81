"""Draws predicted against published values of one table: an SVG scatter plot with logarithmic axes."""

import math

from gpuyard.draw.markup import element, path, text_element
from gpuyard.draw.palette import MANY_COLORS
from gpuyard.predictor.validation import PredictedRow, TableScore

_SIDE, _MARGIN, _LEGEND = 420, 56, 170
_FOOT = _SIDE - _MARGIN
_MAX_DOTS = 1500  # more dots per table would only cover each other
_ERROR_BAND = 1.15  # dashed lines mark predictions that are off by this factor
_GRAY, _BLACK = "#666", "black"


def draw_validation_svg(scored: TableScore) -> str:
    """Draw the speedup over the row's reference value: published across, predicted up."""
    rows = scored.rows[:: max(1, len(scored.rows) // _MAX_DOTS)]
    dots = [
        (_get_speedup(p, p.row.samples_per_second), _get_speedup(p, p.samples_per_second))
        for p in rows
    ]
    axis = _Axis(min(map(min, dots)) / 1.1, max(map(max, dots)) * 1.1)
    models = list(dict.fromkeys(p.row.model for p in scored.rows))
    styles = {model: _get_dot_style(number) for number, model in enumerate(models)}
    parts = [
        text_element("title", f"{scored.source.title}: predicted against published"),
        element("rect", width=_SIDE + _LEGEND, height=_SIDE, fill="white"),
        *axis.draw(),
        axis.draw_diagonal(1.0, None),
        axis.draw_diagonal(_ERROR_BAND, "3 3"),
        axis.draw_diagonal(1 / _ERROR_BAND, "3 3"),
    ]
    for (x, y), p in zip(dots, rows, strict=True):
        center = {"cx": axis.across(x), "cy": axis.up(y)}
        parts.append(element("circle", **center, r=2.4, **styles[p.row.model], opacity="0.55"))
    for i, (model, style) in enumerate(styles.items()):
        y = 24 + 18 * i
        parts.append(element("circle", cx=_SIDE + 8, cy=y, r=4, **style))
        parts.append(text_element("text", model, x=_SIDE + 18, y=y + 4))
    svg = element("svg", "\n" + "\n".join(parts) + "\n", xmlns="http://www.w3.org/2000/svg",
                    viewBox=f"0 0 {_SIDE + _LEGEND} {_SIDE}", font_family="sans-serif", font_size=12,
                    role="img")  # fmt: skip
    return svg + "\n"


def _get_dot_style(number: int) -> dict[str, str]:
    """Return a filled dot in the model's color, or a ring if all colors are already used."""
    color = MANY_COLORS[number % len(MANY_COLORS)]
    return {"fill": color} if number < len(MANY_COLORS) else {"fill": "none", "stroke": color}


def _get_speedup(point: PredictedRow, rate: float) -> float:
    return rate / point.row.anchor.samples_per_second


class _Axis:
    """A logarithmic scale that both axes share."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def across(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return _MARGIN + (_SIDE - _MARGIN - 14) * share

    def up(self, value: float) -> float:
        return _SIDE - self.across(value)

    def draw_diagonal(self, factor: float, dashes: str | None) -> str:
        """Draw the line on which the prediction is `factor` times the published value."""
        start, end = self.low / min(factor, 1), self.high / max(factor, 1)
        return element("line", x1=self.across(start), y1=self.up(start * factor), x2=self.across(end),
                       y2=self.up(end * factor), stroke=_GRAY, stroke_dasharray=dashes)  # fmt: skip

    def draw(self) -> list[str]:
        sideways = f"translate(14 {_FOOT / 2 + 10:g}) rotate(-90)"
        middle = (_SIDE + _MARGIN) / 2
        parts = [
            path(["M", _MARGIN, 10, "V", _FOOT, "H", _SIDE - 10], stroke=_BLACK, stroke_width=1),
            text_element("text", "published speedup", x=middle, y=_SIDE - 12, text_anchor="middle"),
            text_element("text", "predicted speedup", transform=sideways, text_anchor="middle"),
        ]  # fmt: skip
        for tick in self._choose_ticks():
            x, y = self.across(tick), self.up(tick)
            parts += [
                element("line", x1=x, y1=_FOOT, x2=x, y2=_FOOT + 5, stroke=_BLACK),
                text_element("text", f"{tick:g}", x=x, y=_FOOT + 18, text_anchor="middle"),
                element("line", x1=_MARGIN - 5, y1=y, x2=_MARGIN, y2=y, stroke=_BLACK),
                text_element("text", f"{tick:g}", x=_MARGIN - 8, y=y + 4, text_anchor="end"),
            ]
        return parts

    def _choose_ticks(self) -> list[float]:
        powers = range(math.floor(math.log2(self.low)), math.ceil(math.log2(self.high)) + 1)
        step = max(1, len(powers) // 7)
        return [2.0**power for power in powers[::step] if self.low <= 2.0**power <= self.high]
