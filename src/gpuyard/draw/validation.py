"""Predicted against published: a scatter of one table as SVG, both logarithmic."""

import math

from gpuyard.draw.markup import element, path, words
from gpuyard.draw.palette import MANY_COLOURS
from gpuyard.predict.validation import PredictedRow, TableScore

_SIDE, _MARGIN, _LEGEND = 420, 56, 170
_FOOT = _SIDE - _MARGIN
_MOST_DOTS = 1500  # of a table; more would only be drawn over each other
_FAR = 1.15  # dashed on both sides of what would be exact
_GREY, _BLACK = "#666", "black"


def validation_svg(scored: TableScore) -> str:
    """Speed-up over the figure that a row is predicted from: published across, predicted up."""
    rows = scored.rows[:: max(1, len(scored.rows) // _MOST_DOTS)]
    dots = [
        (_speed_up(p, p.row.samples_per_second), _speed_up(p, p.samples_per_second)) for p in rows
    ]
    axis = _Axis(min(map(min, dots)) / 1.1, max(map(max, dots)) * 1.1)
    models = list(dict.fromkeys(p.row.model for p in scored.rows))
    looks = {model: _look(number) for number, model in enumerate(models)}
    parts = [
        words("title", f"{scored.source.title}: predicted against published"),
        element("rect", width=_SIDE + _LEGEND, height=_SIDE, fill="white"),
        *axis.draw(),
        axis.diagonal(1.0, None),
        axis.diagonal(_FAR, "3 3"),
        axis.diagonal(1 / _FAR, "3 3"),
    ]
    for (x, y), p in zip(dots, rows, strict=True):
        at = {"cx": axis.across(x), "cy": axis.up(y)}
        parts.append(element("circle", **at, r=2.4, **looks[p.row.model], opacity="0.55"))
    for i, (model, look) in enumerate(looks.items()):
        y = 24 + 18 * i
        parts.append(element("circle", cx=_SIDE + 8, cy=y, r=4, **look))
        parts.append(words("text", model, x=_SIDE + 18, y=y + 4))
    whole = element("svg", "\n" + "\n".join(parts) + "\n", xmlns="http://www.w3.org/2000/svg",
                    viewBox=f"0 0 {_SIDE + _LEGEND} {_SIDE}", font_family="sans-serif", font_size=12,
                    role="img")  # fmt: skip
    return whole + "\n"


def _look(number: int) -> dict[str, str]:
    """A dot of its own colour; once all colours are used, a ring."""
    colour = MANY_COLOURS[number % len(MANY_COLOURS)]
    return {"fill": colour} if number < len(MANY_COLOURS) else {"fill": "none", "stroke": colour}


def _speed_up(point: PredictedRow, rate: float) -> float:
    return rate / point.row.anchor.samples_per_second


class _Axis:
    """The same across and up, from the lowest value to the highest."""

    def __init__(self, low: float, high: float) -> None:
        self.low, self.high = low, high

    def across(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return _MARGIN + (_SIDE - _MARGIN - 14) * share

    def up(self, value: float) -> float:
        return _SIDE - self.across(value)

    def diagonal(self, factor: float, dashes: str | None) -> str:
        """Where the prediction is so many times what was published."""
        start, end = self.low / min(factor, 1), self.high / max(factor, 1)
        return element("line", x1=self.across(start), y1=self.up(start * factor), x2=self.across(end),
                       y2=self.up(end * factor), stroke=_GREY, stroke_dasharray=dashes)  # fmt: skip

    def draw(self) -> list[str]:
        sideways = f"translate(14 {_FOOT / 2 + 10:g}) rotate(-90)"
        middle = (_SIDE + _MARGIN) / 2
        parts = [
            path(["M", _MARGIN, 10, "V", _FOOT, "H", _SIDE - 10], stroke=_BLACK, stroke_width=1),
            words("text", "published speed-up", x=middle, y=_SIDE - 12, text_anchor="middle"),
            words("text", "predicted speed-up", transform=sideways, text_anchor="middle"),
        ]  # fmt: skip
        for tick in self._ticks():
            x, y = self.across(tick), self.up(tick)
            parts += [
                element("line", x1=x, y1=_FOOT, x2=x, y2=_FOOT + 5, stroke=_BLACK),
                words("text", f"{tick:g}", x=x, y=_FOOT + 18, text_anchor="middle"),
                element("line", x1=_MARGIN - 5, y1=y, x2=_MARGIN, y2=y, stroke=_BLACK),
                words("text", f"{tick:g}", x=_MARGIN - 8, y=y + 4, text_anchor="end"),
            ]
        return parts

    def _ticks(self) -> list[float]:
        powers = range(math.floor(math.log2(self.low)), math.ceil(math.log2(self.high)) + 1)
        step = max(1, len(powers) // 7)
        return [2.0**power for power in powers[::step] if self.low <= 2.0**power <= self.high]
