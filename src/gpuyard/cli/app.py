"""The root command.

It adjusts typer's help and error messages for people who don't write Python: FILE and N instead of Python types,
paragraphs as wide as the terminal, and the expected value in each error. It sets only public attributes of typer's
commands and parameters."""

import contextlib
import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.core import TyperGroup

from gpuyard.cli.exits import clean_message, run_and_exit
from gpuyard.cli.options import add_allow_code_option
from gpuyard.cli.output import add_output_options
from gpuyard.errors import GpuyardError, UnknownName, closest_names
from gpuyard.files import data_directories
from gpuyard.temporary import remove_leftovers, shared_directory
from gpuyard.version import __version__

PANELS = {
    "Decide": ("study", "predict", "goodput", "plan", "playbook", "cost", "facility"),
    "Measure": (
        "doctor",
        "bench",
        "accept",
        "train",
        "results",
        "calibrate",
        "validate",
        "lab",
        "data",
        "horovod",
    ),
    "Look up": ("init", "catalog", "prices", "topo", "schema", "help", "version"),
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
        "serve",
    ),
    "Run jobs": (
        "submit",
        "queue",
        "status",
        "watch",
        "logs",
        "wait",
        "cancel",
        "retry",
        "simulate",
    ),
}
"""All commands, in the order of the help."""
_COMMAND_PANELS = {name: panel for panel, names in PANELS.items() for name in names}
_FOLDERS = {
    "deploy": {"stack"},
    "jobs": {"cancel", "logs", "queue", "retry", "simulate", "status", "submit", "wait", "watch"},
    "measure": {"bench", "calibrate", "data", "horovod", "results", "train", "validate"},
    "share": {"audit", "lease", "notebook", "release", "reserve", "share", "usage", "who"},
}
"""The subfolders of `cli/` and their commands; the other commands are directly in `cli/`."""

_WRONG_CHOICE = re.compile(r"^'(.*)' is not one of ('.*')\.?$")
_MAX_PLACEHOLDER = 11
"""The longest list of values that is shown as a placeholder; a longer one would make every help narrower."""
_PLACEHOLDERS: dict[Any, str] = {int: "N", float: "NUMBER", Path: "FILE", str: "TEXT"}


class _Commands(TyperGroup):
    """Imports only the command on the command line; the help of all commands imports all of them."""

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        self._load(_COMMAND_PANELS)
        return list(_COMMAND_PANELS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        # typer needs all names to suggest one that is similar to an unknown name
        self._load((cmd_name,) if cmd_name in _COMMAND_PANELS else _COMMAND_PANELS)
        return super().get_command(ctx, cmd_name)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _make_typer_errors_printable():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _make_typer_errors_printable():
            return super().invoke(ctx)

    def get_params(self, ctx: Any) -> list[Any]:
        return _simplify_parameters(super().get_params(ctx), self.callback)

    def _load(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self.commands:
                self.commands[name] = _import_command(name)


@contextlib.contextmanager
def _make_typer_errors_printable() -> Iterator[None]:
    """Clean typer's own messages, which quote the command line and which typer prints itself."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "format_message"):
            error.message = clean_message(error.message)  # type: ignore[attr-defined]
        raise


def _import_command(name: str) -> Any:
    folder = next((f"{folder}." for folder, names in _FOLDERS.items() if name in names), "")
    module = import_module(f"gpuyard.cli.{folder}{name}")
    parent, panel = typer.Typer(), _COMMAND_PANELS[name]
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name, rich_help_panel=panel)
    else:
        parent.command(name, rich_help_panel=panel)(getattr(module, name))
    command = typer.main.get_group(parent).commands[name]
    add_allow_code_option(command, name)
    _simplify(add_output_options(command))
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


def _print_version(requested: bool) -> None:
    if requested:
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
            "-V", "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    del version
    if debug:
        os.environ["GPUYARD_DEBUG"] = "1"
    with contextlib.suppress(GpuyardError, OSError):  # commands that need no directory must work
        remove_leftovers(shared_directory(), *data_directories())


def run() -> None:
    """Run the command line and exit with its status."""
    run_and_exit(lambda: app(prog_name="gpuyard"))


def _simplify(command: Any) -> None:
    """Simplify the help and the error messages of a command and its subcommands."""
    command.help = _join_lines(command.help) if command.help else None
    get_params = command.get_params
    command.get_params = lambda context: _simplify_parameters(get_params(context), command.callback)
    command.parse_args = _explain_errors(command.parse_args)
    for subcommand in getattr(command, "commands", {}).values():
        _simplify(subcommand)


def _explain_errors(parse: Callable[[Any, list[str]], list[str]]) -> Any:
    """Replace pydantic's message with gpuyard's, and suggest only similar options."""

    def parse_args(context: Any, args: list[str]) -> list[str]:
        try:
            return parse(context, args)
        except Exception as error:
            invalid: Any = error.__cause__ or error.__context__
            if hasattr(error, "message") and hasattr(invalid, "errors"):
                from gpuyard.specs.spec_errors import explain_value

                error.message = explain_value(invalid.errors()[0])
            if match := _WRONG_CHOICE.match(getattr(error, "message", "") or ""):
                kind = error.param.name.strip("_").replace("_", " ")  # type: ignore[attr-defined]
                raise UnknownName(kind, match[1], match[2].strip("'").split("', '")) from None
            if hasattr(error, "possibilities") and hasattr(error, "option_name"):
                error.possibilities = _find_similar_options(context.command, error.option_name)
            raise

    return parse_args


def _find_similar_options(command: Any, wrong: str) -> list[str]:
    """Compare names without their dashes, which would make all options look similar."""
    names = [name for p in command.params for name in (*p.opts, *p.secondary_opts)]
    options = ["help", *(name.lstrip("-") for name in names if name.startswith("--"))]
    return [f"--{name}" for name in closest_names(wrong.lstrip("-"), options)]


def _join_lines(text: str) -> str:
    """Put each paragraph on one line, so that typer can wrap it to the terminal's width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def _simplify_parameters(parameters: list[Any], callback: Callable[..., Any] | None) -> list[Any]:
    """Give each parameter a placeholder for its value, and shorten its help."""
    signature = inspect.signature(callback).parameters if callback else {}
    rich_utils: Any = sys.modules.get("typer.rich_utils")
    if rich_utils is not None:  # help is being printed
        rich_utils.STYLE_OPTIONS_TABLE_PADDING = (0, 1, 0, 0)  # narrows the empty columns
    for parameter in parameters:
        declared = signature.get(parameter.name)
        _add_default_to_help(parameter)
        if parameter.name in ("help", "output_format"):
            _hide_short_name(parameter)
        # only the help reads these two; the error for a value out of range names the limits
        parameter.min = parameter.max = None
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
            parameter.display_type_rich = lambda ctx: ""  # noqa: ARG005
            usage = _format_usage(parameter)
            parameter.get_usage_pieces = lambda ctx, usage=usage: [usage]  # noqa: ARG005
        elif parameter.metavar is None and (parameter.is_flag or parameter.name == "help"):
            parameter.metavar = ""
        elif parameter.metavar is None and declared is not None:
            parameter.metavar = _get_placeholder(declared.annotation)
        if declared is not None:
            _add_choices_to_help(parameter, list_choices(declared.annotation))
    return parameters


def list_choices(annotation: Any) -> list[str]:
    """Return the values of an option or argument that accepts one of a few names."""
    for kind in (annotation, *get_args(annotation)):
        if get_origin(kind) is Literal:
            return [str(value) for value in get_args(kind)]
        if inspect.isclass(kind) and issubclass(kind, StrEnum):
            return [member.value for member in kind]
        if kind is not annotation and (inner := list_choices(kind)):
            return inner
    return []


def _add_choices_to_help(parameter: Any, choices: list[str]) -> None:
    """Show few values instead of a placeholder, and many in the sentence, unless it names them already."""
    if not choices:
        return
    shown = "|".join(choices)
    if parameter.metavar is None:
        parameter.metavar = shown if len(shown) <= _MAX_PLACEHOLDER else "NAME"
    text = parameter.help or ""
    if parameter.metavar != shown and not all(value in text for value in choices):
        sentence, default, value = text.removesuffix(".").partition(" (default: ")
        parameter.help = f"{sentence}: {', '.join(choices)}{default}{value}."


def _format_usage(argument: Any) -> str:
    name = argument.metavar if argument.required else f"[{argument.metavar}]"
    return name if argument.nargs == 1 else f"{name}..."


def _add_default_to_help(parameter: Any) -> None:
    """Put the default into the sentence; typer would put it on its own line in a narrow terminal."""
    shown, default = parameter.show_default, parameter.default
    if not shown or not parameter.help or "default" in parameter.help:
        return
    parameter.show_default = False
    if isinstance(shown, str):
        text = shown
    elif isinstance(default, bool) or default in (None, "") or callable(default):
        return
    else:
        unit = " s" if parameter.metavar == "TIME" else ""
        text = f"{default:g}{unit}" if isinstance(default, float) else str(default)
    parameter.help = f"{parameter.help.removesuffix('.')} (default: {text})."


def _hide_short_name(parameter: Any) -> None:
    """Accept `-h` and `-o` without showing them: a column for them alone would make every help narrower."""
    both, add = parameter.opts, parameter.add_to_parser
    shown = [name for name in both if name.startswith("--")]
    if shown == both:
        return

    def add_both(parser: Any, context: Any) -> None:
        parameter.opts = both
        add(parser, context)
        parameter.opts = shown

    parameter.opts = shown
    parameter.add_to_parser = add_both


def _get_placeholder(annotation: Any) -> str | None:
    types = _flatten_types(annotation)
    return next((_PLACEHOLDERS[kind] for kind in types if kind in _PLACEHOLDERS), None)


def _flatten_types(annotation: Any) -> list[Any]:
    inner = get_args(annotation)
    return [kind for part in inner for kind in _flatten_types(part)] if inner else [annotation]
