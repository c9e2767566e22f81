"""The output of a command: an answer as tables, JSON, or a page, and its progress on stderr."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.show import choose_format, choose_width
from gpuyard.cli.show import show as show  # noqa: PLC0414 - for all commands
from gpuyard.cli.show import show_with_drawing as show_with_drawing  # noqa: PLC0414
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.measure.progress import ProgressCallback, ProgressUpdate

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON; everything else goes to stderr.")
]


def check_output_file(path: Path | None) -> Path | None:
    """Check, before any work, that an option's file can be written; the callback of every such option."""
    from gpuyard.errors import UserMistake
    from gpuyard.files import check_writable
    from gpuyard.temporary import remove_leftovers

    if path == STDOUT:
        raise UserMistake(f"expected a file to write, got {str(path)!r}; it cannot be printed")
    if path is not None:
        check_writable(path)
        remove_leftovers(path.resolve().parent)
        if path.is_dir():
            raise UserMistake(f"{path} cannot be written: it is a directory; name a file in it")
    return path


def check_output_or_stdout(path: Path | None) -> Path | None:
    """Check an option's file like `check_output_file`, and accept `-` for stdout."""
    return path if path == STDOUT else check_output_file(path)


def check_output_directory(path: Path) -> Path:
    """Check an option's directory, which is created if its parent exists."""
    from gpuyard.errors import UserMistake
    from gpuyard.files import check_writable
    from gpuyard.temporary import remove_leftovers

    check_writable(path)
    remove_leftovers(path)
    if path.exists() and not path.is_dir():
        raise UserMistake(f"{path} cannot be written to: it is a file; name a directory")
    return path


def check_destination(path: Path | None) -> Path | None:
    """Check that a copy, which may be a file or a directory, can be put there."""
    from gpuyard.files import check_writable

    if path is not None:
        check_writable(path)
    return path


STDOUT = Path("-")
PageOption = Annotated[
    Path | None,
    typer.Option("--html", help="HTML page to write, with charts.", callback=check_output_file),
]


def write_verbatim(text: str) -> None:
    """Print text unchanged to a file or program; on a terminal, replace characters that it would obey."""
    from gpuyard.printable import make_printable

    sys.stdout.write(make_printable(text) if sys.stdout.isatty() else text)


@contextlib.contextmanager
def show_if_not_stored(
    *, json_output: bool, document: Callable[[Any], Any] = lambda record: record
) -> Iterator[None]:
    """Show a measurement that could not be stored, for example on a full disk.

    `document` wraps the record like the command's own JSON does.
    """
    from dataclasses import replace

    from gpuyard.measure.store import NotStored
    from gpuyard.report.answers.results import record_answer

    try:
        yield
    except NotStored as lost:
        answer = record_answer(lost.record)
        show(replace(answer, document=document(answer.document)), json_output=json_output)
        raise


class OutputFormat(StrEnum):
    """The formats of `-o`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


def add_output_options(command: Any) -> Any:
    """Add `-o` and `--wide` to every command that answers."""
    for subcommand in getattr(command, "commands", {}).values():
        add_output_options(subcommand)
    if any("--json" in parameter.opts for parameter in command.params):
        command.params += [
            _create_format_option(),
            create_flag("--wide", "Show all columns, however narrow the terminal.", choose_width),
        ]
        command.parse_args = _replace_format(command.parse_args)
    return command


def _create_format_option() -> Any:
    """Create the option for the help; `_replace_format` removes it from every command line that names a format."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def _(
        *,
        output_format: Annotated[
            OutputFormat | None,
            typer.Option(
                "-o",
                "--output-format",
                metavar="FORMAT",
                help="Format: table, json, yaml, or csv; short: -o.",
            ),
        ] = None,
    ) -> None:
        del output_format

    (option,) = typer.main.get_command(app).params
    option.expose_value = False
    return option


def _replace_format(parse: Callable[[Any, list[str]], list[str]]) -> Any:
    """Let `-o json` stand for `--json`; YAML and CSV are that document in another format."""

    def parse_args(context: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        own = args[:end]
        for index, word in enumerate(own):
            option, equals, value = word.partition("=")
            name = value if equals else "".join(own[index + 1 : index + 2])
            if option == "-on":
                raise UserMistake("-on is not an option; did you mean --on?")
            if option in ("-o", "--output-format") and name in set(OutputFormat):
                if "--json" in own and name != OutputFormat.JSON:
                    raise UserMistake(f"--json and -o {name} exclude each other")
                choose_format("json" if name == OutputFormat.TABLE else name)
                flag = [] if name == OutputFormat.TABLE else ["--json"]
                rest = own[index + (1 if equals else 2) :]
                return parse(context, [*own[:index], *flag, *rest, *args[end:]])
        return parse(context, args)

    return parse_args


def create_flag(name: str, help: str, callback: Callable[[bool], None]) -> Any:
    """Create a flag that the command's own function does not receive."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def _(
        *, flag: Annotated[bool, typer.Option(name, callback=callback, help=help)] = False
    ) -> None:
        del flag

    (option,) = typer.main.get_command(app).params
    option.expose_value = False
    return option


@contextlib.contextmanager
def progress_bar(first: str = "starting") -> "Iterator[ProgressCallback]":
    """Show a progress bar, and return the callback that updates it; unknown values are not shown."""
    from rich import progress as rich

    from gpuyard.report.terminal import create_console

    columns = (
        rich.TextColumn("{task.description}", markup=False),
        rich.BarColumn(),
        rich.TextColumn("{task.fields[share]}", markup=False),
        rich.TimeElapsedColumn(),
        rich.TextColumn("{task.fields[remaining]}", markup=False),
    )
    console = create_console(stderr=True)
    hidden = not console.is_interactive  # rich would print an empty line at the end
    with rich.Progress(*columns, console=console, transient=True, disable=hidden) as display:
        bar = display.add_task(first, total=None, share="", remaining="")

        def on_progress(progress: "ProgressUpdate") -> None:
            display.update(
                bar,
                description=progress.description,
                completed=progress.done,
                total=progress.total,
                share=_format_share(progress),
                remaining=_format_remaining(progress),
            )
            if progress.message:
                display.console.print(progress.message, highlight=False, markup=False)

        yield on_progress


@contextlib.contextmanager
def show_status(activity: str) -> Iterator[None]:
    """Show a spinner during work that has no measurable progress."""
    from rich.text import Text

    from gpuyard.report.terminal import create_console

    with create_console(stderr=True).status(Text(activity)):
        yield


def _format_share(progress: "ProgressUpdate") -> str:
    if not progress.total:
        return ""
    if progress.total > 1:
        return f"{int(progress.done)} of {progress.total:g}"
    return f"{100 * progress.done / progress.total:.0f}%"


def _format_remaining(progress: "ProgressUpdate") -> str:
    from gpuyard.units import format_seconds

    if progress.remaining_seconds is None:
        return ""
    return f"{format_seconds(max(1, round(progress.remaining_seconds)))} left"
