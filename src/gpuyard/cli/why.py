"""`gpuyard predict --why`: the explanation of one configuration on a terminal."""

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard import units
from gpuyard.cli.options import console, print_table

if TYPE_CHECKING:
    from gpuyard.predict import Remedy
    from gpuyard.predict.why import Why

_WIDTH = 100
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=\S)")


def print_why(why: "Why") -> None:
    """Words, time line, remedies."""
    from gpuyard.draw.timeline import timeline_terminal

    out = console()
    out.print()
    out.print(
        f"Why, with {why.gpus} × a batch of {why.batch_per_gpu}", style="bold", highlight=False
    )
    for sentence in why.sentences:
        out.print(_wrapped(sentence), highlight=False, markup=False)
    out.print()
    for text, style in timeline_terminal(why.timeline):
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


def _mind(remedy: "Remedy") -> str:
    if remedy.memory_bytes is None:
        return remedy.caveat
    needs = f"needs {units.format_bytes(remedy.memory_bytes)} a GPU"
    return f"{needs}; {remedy.caveat}" if remedy.caveat else needs
