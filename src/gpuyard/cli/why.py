"""`gpuyard predict --why`: the explanation of one configuration on a terminal."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard import units
from gpuyard.cli.options import console, print_table

if TYPE_CHECKING:
    from gpuyard.predict import Remedy
    from gpuyard.predict.timeline import Bar, TimeLine
    from gpuyard.predict.why import Why

_WIDTH = 100
_LABEL = 21
_TIMES = 19
_MOST_BUCKET_ROWS = 12
_LONG_STEP_SECONDS = 10.0
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=\S)")
_STYLES = {"compute": "green", "exchange": "cyan", "wait": "red"}


def print_why(why: "Why") -> None:
    """Words, time line, remedies."""
    out = console()
    out.print()
    out.print(
        f"Why, with {why.gpus} × a batch of {why.batch_per_gpu}", style="bold", highlight=False
    )
    for sentence in why.sentences:
        out.print(_wrapped(sentence), highlight=False, markup=False)
    out.print()
    for text, style in gantt(why.timeline):
        out.print(text, style=style, highlight=False, markup=False)
    if why.timeline.note:
        out.print(_wrapped(why.timeline.note), style="dim", highlight=False, markup=False)
    out.print()
    if not why.remedies:
        out.print("Nothing that was tried would gain 3 %.", highlight=False)
        return
    print_table(
        "What would help",
        ["change", "samples/s", "gain", "mind"],
        [
            [r.what, f"{r.samples_per_second:,.1f}", f"{100 * (r.gain - 1):.0f} %", _mind(r)]
            for r in why.remedies
        ],
    )


def write_svg(why: "Why", title: str, path: Path) -> None:
    """The time line as a picture."""
    from gpuyard.draw.timeline import timeline_svg
    from gpuyard.files import write_text

    many = f"{why.gpus} × a batch of {why.batch_per_gpu}"
    write_text(path, timeline_svg(why.timeline, f"One step of {title}, {many}"))


def _wrapped(sentence: str) -> str:
    """At most 100 columns, and no line break between a number and its unit."""
    glued = _BEFORE_UNIT.sub("\N{NO-BREAK SPACE}", sentence)
    return textwrap.fill(glued, _WIDTH).replace("\N{NO-BREAK SPACE}", " ")


def gantt(line: "TimeLine") -> Iterator[tuple[str, str]]:
    """Lines and their styles, no wider than 100 columns."""
    width = _WIDTH - _LABEL - _TIMES - 2
    end = units.format_seconds(line.step_seconds)
    yield f"{'one step':<{_LABEL}} 0{end:>{width - 1}}", "bold"
    unit, factor = ("s", 1.0) if line.step_seconds >= _LONG_STEP_SECONDS else ("ms", 1e3)
    for name, bars in line.rows(_MOST_BUCKET_ROWS):
        marks = _marks(bars, line.step_seconds, width)
        first, last = bars[0].start_seconds, bars[-1].end_seconds
        times = f"{factor * first:.1f} – {factor * last:.1f} {unit}"
        yield f"{name:<{_LABEL}} {marks} {times:>{_TIMES}}", _STYLES[bars[0].lane]
    if line.lane("exchange"):
        yield f"{'':<{_LABEL}} █ busy   · full, but the link or another worker is not ready", "dim"


def _marks(bars: Sequence["Bar"], step_seconds: float, width: int) -> str:
    def column(seconds: float) -> int:
        return min(width, round(width * seconds / step_seconds))

    marks = [" "] * width
    for bar in bars:
        if bar.ready_seconds is not None:
            for at in range(column(bar.ready_seconds), column(bar.start_seconds)):
                marks[at] = "·" if marks[at] == " " else marks[at]
        start = min(column(bar.start_seconds), width - 1)
        # however short it is, it is there
        for at in range(start, max(column(bar.end_seconds), start + 1)):
            marks[at] = "█"
    return "".join(marks)


def _mind(remedy: "Remedy") -> str:
    if remedy.memory_bytes is None:
        return remedy.caveat
    needs = f"needs {units.format_bytes(remedy.memory_bytes)} a GPU"
    return f"{needs}; {remedy.caveat}" if remedy.caveat else needs
