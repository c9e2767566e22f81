"""The root command with all verbs, and the one place where an error becomes an exit status.

Help and complaints are in plain words: FILE and N where typer would show types of Python, paragraphs that are
as wide as the terminal, and of a wrong value what was expected. Options that had another name before every command
had the same name for the same thing are still taken, and no help shows them."""

import contextlib
import contextvars
import errno
import inspect
import io
import os
import shutil
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NoReturn, get_args

import typer
from typer.core import TyperGroup

from gpuyard import __version__, files, temporary
from gpuyard.cli.options import add_allow_code_option, agreed
from gpuyard.cli.output import add_wide_option
from gpuyard.errors import CodeNotAllowed, GpuyardError, closest_names, quoted
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

_PLACEHOLDERS: dict[Any, str] = {int: "N", float: "NUMBER", Path: "FILE", str: "TEXT"}
OLD_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "bench collectives": {"nodes": "workers"},
    "bench relief": {"nodes": "workers"},
    "bench storage": {"data": "dataset", "seconds": "time-per-point"},
    "bench train": {"seconds": "time-per-point"},
    "cost growth": {"people": "researchers"},
    "cost hybrid": {"life": "horizon", "pattern": "load"},
    "horovod install": {"again": "fresh"},
    "predict": {"beside": "other-jobs"},
    "topo": {"cluster": "on"},
}
"""Command → the old name of an option → its name."""


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
        return _with_placeholders(super().get_params(ctx), self.callback)

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
    _take_old_spellings(command, name)
    add_allow_code_option(command, name)
    _make_plain(add_wide_option(command))
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
    temporary.sweep(*files.directories(), temporary.shared_directory())


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


def _make_plain(command: Any) -> None:
    """The help of this command and of those below it."""
    command.help = _unwrapped(command.help) if command.help else None
    parameters = command.get_params
    command.get_params = lambda context: _with_placeholders(parameters(context), command.callback)
    command.parse_args = _complaining_plainly(command.parse_args)
    for below in getattr(command, "commands", {}).values():
        _make_plain(below)


def _complaining_plainly(parse: Callable[[Any, list[str]], list[str]]) -> Any:
    def parse_args(context: Any, args: list[str]) -> list[str]:
        try:
            return parse(context, args)
        except Exception as error:
            invalid: Any = error.__cause__ or error.__context__
            if hasattr(error, "message") and hasattr(invalid, "errors"):
                from gpuyard.specs.mistakes import expected_and_got

                error.message = expected_and_got(invalid.errors()[0])
            if hasattr(error, "possibilities") and hasattr(error, "option_name"):
                error.possibilities = _near_options(context.command, error.option_name)
            raise

    return parse_args


def _near_options(command: Any, wrong: str) -> list[str]:
    """Typer takes the dashes, which all have, for a likeness."""
    spelled = [name for p in command.params for name in (*p.opts, *p.secondary_opts)]
    options = ["--help", *(name for name in spelled if name.startswith("--"))]
    return [f"--{n}" for n in closest_names(wrong.lstrip("-"), [o.lstrip("-") for o in options])]


def _unwrapped(text: str) -> str:
    """One line a paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _with_placeholders(parameters: list[Any], callback: Callable[..., Any] | None) -> list[Any]:
    """Each with what stands for its value."""
    signature = inspect.signature(callback).parameters if callback else {}
    look: Any = sys.modules.get("typer.rich_utils")
    if look is not None:  # help is being printed
        look.STYLE_OPTIONS_TABLE_PADDING = (0, 1, 0, 0)  # its empty columns take half of the room
    for parameter in parameters:
        declared = signature.get(parameter.name)
        _say_default_in_words(parameter)
        if parameter.name == "help":
            _without_a_column_of_short_names(parameter)
        # what is out of range is told when it happens
        parameter._get_number_range_help_str = lambda: None
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
            parameter.display_type_rich = lambda ctx: ""  # noqa: ARG005
            parameter._usage_display_name = partial(_usage, parameter)
        elif parameter.metavar is None and (parameter.is_flag or parameter.name == "help"):
            parameter.metavar = ""
        elif parameter.metavar is None and declared is not None:
            parameter.metavar = _placeholder(declared.annotation)
    return parameters


def _usage(argument: Any) -> str:
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    return name if argument.nargs == 1 else f"{name}..."


def _say_default_in_words(parameter: Any) -> None:
    """In its sentence: typer would give it a line of its own wherever the width is short."""
    shown, default = parameter.show_default, parameter.default
    if not shown or not parameter.help or "default" in parameter.help:
        return
    parameter.show_default = False
    if isinstance(shown, str):
        words = shown
    elif isinstance(default, bool) or default in (None, "") or callable(default):
        return
    else:
        unit = " s" if parameter.metavar == "TIME" else ""
        words = f"{default:g}{unit}" if isinstance(default, float) else str(default)
    parameter.help = f"{parameter.help.removesuffix('.')} (default: {words})."


def _without_a_column_of_short_names(parameter: Any) -> None:
    """`-h` works, but for it alone every help would be a tenth narrower."""
    if "-h" not in parameter.opts:
        return
    both, add = parameter.opts, parameter.add_to_parser

    def add_both(parser: Any, context: Any) -> None:
        parameter.opts = both
        add(parser, context)
        parameter.opts = ["--help"]

    parameter.opts = ["--help"]
    parameter.add_to_parser = add_both


def _placeholder(annotation: Any) -> str | None:
    return next((_PLACEHOLDERS[kind] for kind in _types(annotation) if kind in _PLACEHOLDERS), None)


def _types(annotation: Any) -> list[Any]:
    inner = get_args(annotation)
    return [annotation] if not inner else [found for one in inner for found in _types(one)]


def _take_old_spellings(command: Any, path: str) -> None:
    """Let this command and those below it read the old names as the new ones."""
    renamed = OLD_SPELLINGS.get(path)
    if renamed is not None:
        command.context_settings["token_normalize_func"] = lambda name: renamed.get(name, name)
    for name, below in getattr(command, "commands", {}).items():
        _take_old_spellings(below, f"{path} {name}")
