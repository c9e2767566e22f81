"""The root command with all verbs, and the one place where an error becomes an exit status."""

import contextlib
import contextvars
import errno
import io
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from gpuyard import __version__, files
from gpuyard.cli.options import add_allow_code_option, agreed
from gpuyard.cli.output import add_wide_option
from gpuyard.cli.plain_help import make_plain, take_old_spellings, with_placeholders
from gpuyard.errors import CodeNotAllowed, GpuyardError, quoted
from gpuyard.interpreter import forget_current_directory
from gpuyard.printable import printable

_STOPPED = 130
_LONGEST = 4000  # characters of a sentence
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_PANELS = {
    "Decide": ("study", "predict", "plan", "playbook", "cost", "facility"),
    "Measure": (
        "doctor",
        "bench",
        "train",
        "results",
        "calibrate",
        "validate",
        "lab",
        "data",
        "horovod",
    ),
    "Look up": ("catalog", "prices", "topo", "schema"),
    "Build the cluster": ("stack", "deploy"),
    "Share a GPU server": (
        "lease",
        "who",
        "release",
        "reserve",
        "usage",
        "audit",
        "notebook",
        "share",
    ),
    "Run jobs": ("submit", "queue", "status", "logs", "wait", "cancel", "retry", "simulate"),
}
"""All commands, in the order in which the help shows them."""
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
_ROOMS = {
    "deploy": {"stack"},
    "jobs": {"cancel", "logs", "queue", "retry", "simulate", "status", "submit", "wait"},
    "measure": {"bench", "calibrate", "data", "horovod", "results", "train", "validate"},
    "share": {"audit", "lease", "notebook", "release", "reserve", "share", "usage", "who"},
}
"""Of `cli/`, and the commands in each; the others are on its floor."""


class _Commands(TyperGroup):
    """Imports what a command line names, and nothing else: the help of all takes all of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        self._load(_PANEL_OF)
        return list(_PANEL_OF)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # of a name that is none, typer says which others are close
        self._load((cmd_name,) if cmd_name in _PANEL_OF else _PANEL_OF)
        return super().get_command(ctx, cmd_name)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _typers_errors_printable():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _typers_errors_printable():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        return with_placeholders(super().get_params(ctx), self.callback)

    def _load(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.commands:
                self.commands[name] = _command(name)


@contextlib.contextmanager
def _typers_errors_printable() -> Iterator[None]:
    """Its sentences quote what was typed, and it prints them itself."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):
            error.message = _sentence(error.message)  # type: ignore[attr-defined]
        raise


def _sentence(text: object) -> str:
    """For a terminal; of what somebody pasted, no more than a screen."""
    said = printable(str(text))
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}…"


def _lines(text: str) -> str:
    """On a terminal, broken between words; elsewhere as it is."""
    if not sys.stderr.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(
        textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


def _command(name: str) -> Any:
    room = next((f"{room}." for room, names in _ROOMS.items() if name in names), "")
    module = import_module(f"gpuyard.cli.{room}{name}")
    alone, panel = typer.Typer(), _PANEL_OF[name]
    if hasattr(module, "app"):
        alone.add_typer(module.app, name=name, rich_help_panel=panel)
    else:
        alone.command(name, rich_help_panel=panel)(getattr(module, name))
    command = typer.main.get_group(alone).commands[name]
    take_old_spellings(command, name)
    add_allow_code_option(command, name)
    make_plain(add_wide_option(command))
    return command


app = typer.Typer(
    name="gpuyard",
    cls=_Commands,
    help="Should we add GPUs, which, where, and what will it cost? gpuyard answers with evidence.",
    epilog="Start with: gpuyard doctor",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"gpuyard {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    *,
    debug: Annotated[
        bool,
        typer.Option("--debug", help="Show the traceback of an error.", envvar="GPUYARD_DEBUG"),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    del version
    if debug:
        os.environ["GPUYARD_DEBUG"] = "1"
    files.sweep(*files.directories(), files.shared_directory())


def _show_traceback(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    sys.stderr.write(printable("".join(traceback.format_exception(kind, error, trace))))


def run() -> None:
    """Run the command line and exit with its status."""
    forget_current_directory()
    sys.excepthook = _show_traceback
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal may lack some of our characters
    contextvars.copy_context().run(_run)  # what is allowed is so for this command line


def _run() -> None:
    try:
        try:
            app(prog_name="gpuyard")
        finally:
            sys.stdout.flush()  # that a disk is full is found here, not while Python ends
    except CodeNotAllowed as found:
        if not agreed(found):
            fail(found)
        _run()  # nothing was done yet: code is asked for before anything else
    except GpuyardError as error:
        fail(error)
    except SystemExit as leaving:
        if leaving.code == _STOPPED:  # typer's own answer to Ctrl-C is silence
            sys.stderr.write("gpuyard: stopped; what was finished is kept\n")
        raise
    except BrokenPipeError:
        _write_no_more()  # the reader (head, less) has gone
        sys.exit(141)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # wherever the file was looked for
            sys.stderr.write(
                f"gpuyard: {_sentence(quoted(str(error.filename)))}: {error.strerror}\n"
            )
            sys.exit(2)
        if error.errno not in _NO_ROOM:
            raise
        _write_no_more()
        sys.stderr.write(f"gpuyard: the answer can't be written: {error.strerror}\n")
        sys.exit(1)


def _write_no_more() -> None:
    """Python would complain again while flushing at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(error: GpuyardError) -> NoReturn:
    """Say what is wrong, and exit."""
    if os.environ.get("GPUYARD_DEBUG") == "1":
        raise error
    sys.stderr.write(_lines(f"gpuyard: {_sentence(error)}") + "\n")
    sys.exit(error.exit_status)
