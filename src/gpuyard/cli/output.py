"""What a command prints: an answer as tables, JSON or a page, sentences on stderr, and progress while it works."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gpuyard.measure.progress import ProgressUpdate, Tell
    from gpuyard.report.answer import Answer

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs; everything else goes to stderr.")
]


def writable(path: Path | None) -> Path | None:
    """A callback of every option that names a file to write: whether it can be is told before any work."""
    from gpuyard.errors import UserMistake
    from gpuyard.files import check_writable
    from gpuyard.temporary import sweep

    if path == STDOUT:
        raise UserMistake(f"expected a file to write, got {str(path)!r}; this one is not printed")
    if path is not None:
        check_writable(path)
        sweep(path.resolve().parent)
        if path.is_dir():
            raise UserMistake(f"{path} can't be written: it is a directory; name a file in it")
    return path


def writable_or_printed(path: Path | None) -> Path | None:
    """The same where `-` is stdout."""
    return path if path == STDOUT else writable(path)


def writable_directory(path: Path) -> Path:
    """The same for a directory, which is made if its parent is there."""
    from gpuyard.errors import UserMistake
    from gpuyard.files import check_writable
    from gpuyard.temporary import sweep

    check_writable(path)
    sweep(path)
    if path.exists() and not path.is_dir():
        raise UserMistake(f"{path} can't be written to: it is a file; name a directory")
    return path


STDOUT = Path("-")
PageOption = Annotated[
    Path | None,
    typer.Option("--html", help="Also write a page with charts.", callback=writable),
]

_wide = False


def show(answer: "Answer", *, json_output: bool = False, html: Path | None = None) -> None:
    """Print the answer for who asked, and write its page where one was asked for."""
    from gpuyard.report.answer import json_text
    from gpuyard.report.terminal import print_answer, say

    if html is not None:
        from gpuyard.report.html import write_page

        write_page(answer, html)
    if json_output:
        sys.stdout.write(json_text(answer.document))
    else:
        print_answer(answer, wide=_wide)
    if html is not None:
        say(f"Wrote {html}.")


def write_exactly(text: str) -> None:
    """To a file or a program to the letter; on a terminal, what that would obey is shown instead."""
    from gpuyard.printable import printable

    sys.stdout.write(printable(text) if sys.stdout.isatty() else text)


@contextlib.contextmanager
def shown_if_not_stored(
    *, json_output: bool, document: Callable[[Any], Any] = lambda record: record
) -> Iterator[None]:
    """A measurement that a full disk did not take is shown, in what the command's JSON has around one."""
    from dataclasses import replace

    from gpuyard.measure.store import NotStored
    from gpuyard.report.answers.results import record_answer

    try:
        yield
    except NotStored as lost:
        answer = record_answer(lost.record)
        show(replace(answer, document=document(answer.document)), json_output=json_output)
        raise


def add_wide_option(command: Any) -> Any:
    """Every command that prints tables can print all of their columns: said once, not forty times."""
    for child in getattr(command, "commands", {}).values():
        add_wide_option(child)
    if any("--json" in parameter.opts for parameter in command.params):
        command.params.append(
            added_flag("--wide", "Show all columns, however narrow the terminal.", _choose_width)
        )
    return command


def added_flag(name: str, help: str, callback: Callable[[bool], None]) -> Any:
    """A flag for commands whose own code has nothing to do with it."""
    alone = typer.Typer(add_completion=False)

    @alone.command()
    def _(
        *, flag: Annotated[bool, typer.Option(name, callback=callback, help=help)] = False
    ) -> None:
        del flag

    (option,) = typer.main.get_command(alone).params
    option.expose_value = False
    return option


def _choose_width(wide: bool) -> None:
    global _wide  # noqa: PLW0603 - one command line, one terminal
    _wide = wide


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

        def tell(progress: "ProgressUpdate") -> None:
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


def _share(progress: "ProgressUpdate") -> str:
    if not progress.total:
        return ""
    if progress.total > 1:
        return f"{int(progress.done)} of {progress.total:g}"
    return f"{100 * progress.done / progress.total:.0f} %"


def _left(progress: "ProgressUpdate") -> str:
    from gpuyard.units import format_seconds

    if progress.left_seconds is None:
        return ""
    return f"{format_seconds(max(1, round(progress.left_seconds)))} left"
