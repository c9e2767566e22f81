"""What is shown on stderr while something takes long, and is gone at the end: a bar, or a word."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuyard.measure.clock import Progress, Tell


@contextlib.contextmanager
def progress_bar(first: str = "starting") -> "Iterator[Tell]":
    """Tell it what is done, how far it is, and how long the rest takes; what is not known is not shown."""
    from rich import progress as rich

    from gpuyard.report.terminal import console

    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[share]}", markup=False),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.fields[left]}", markup=False),
    )
    with rich.Progress(*columns, console=console(stderr=True), transient=True) as shown:
        bar = shown.add_task(first, total=None, share="", left="")

        def tell(progress: "Progress") -> None:
            shown.update(
                bar,
                description=progress.what,
                completed=progress.done,
                total=progress.total,
                share=_share(progress),
                left=_left(progress),
            )
            if progress.line:
                shown.console.print(progress.line, highlight=False, markup=False)

        yield tell


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Nothing to count: only that it goes on."""
    from rich.text import Text

    from gpuyard.report.terminal import console

    with console(stderr=True).status(Text(what)):
        yield


def _share(progress: "Progress") -> str:
    if not progress.total:
        return ""
    if progress.total > 1:
        return f"{int(progress.done)} of {progress.total:g}"
    return f"{100 * progress.done / progress.total:.0f} %"


def _left(progress: "Progress") -> str:
    from gpuyard.units import format_seconds

    if progress.left_seconds is None:
        return ""
    return f"{format_seconds(max(1, round(progress.left_seconds)))} left"
