"""Where an answer goes: JSON on stdout, a terminal, a page; what is said beside it goes to stderr."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from gpuyard.report.answer import Answer

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON for programs; everything else goes to stderr.")
]


def writable(path: Path | None) -> Path | None:
    """A callback of every option that names a file to write: whether it can be is told before any work."""
    from gpuyard.errors import UserMistake
    from gpuyard.files import check_writable

    if path == STDOUT:
        raise UserMistake(f"expected a file to write, got {str(path)!r}; this one is not printed")
    if path is not None:
        check_writable(path)
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

    check_writable(path)
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
    from gpuyard.report.document import json_text
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


def add_wide_option(command: Any) -> Any:
    """Every command that prints tables can print all of their columns: said once, not forty times."""
    for child in getattr(command, "commands", {}).values():
        add_wide_option(child)
    if any("--json" in parameter.opts for parameter in command.params):
        command.params.append(_wide_option())
    return command


def _wide_option() -> Any:
    alone = typer.Typer(add_completion=False)

    @alone.command()
    def _(
        *,
        wide: Annotated[
            bool,
            typer.Option(
                "--wide",
                callback=_choose_width,
                help="Show all columns, however narrow the terminal.",
            ),
        ] = False,
    ) -> None:
        del wide

    (option,) = typer.main.get_command(alone).params
    option.expose_value = False
    return option


def _choose_width(wide: bool) -> None:
    global _wide  # noqa: PLW0603 - one command line, one terminal
    _wide = wide
