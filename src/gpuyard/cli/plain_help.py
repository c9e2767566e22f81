"""Help and complaints in plain words: FILE and N where typer would show types of Python, paragraphs that are
as wide as the terminal, and of a wrong value what was expected. Options that had another name before every command
had the same name for the same thing are still taken, and no help shows them."""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

from gpuyard.errors import closest_names

_PLACEHOLDERS: dict[Any, str] = {int: "N", float: "NUMBER", Path: "FILE", str: "TEXT"}


def make_plain(command: Any) -> None:
    """The help of this command and of those below it."""
    command.help = unwrapped(command.help) if command.help else None
    parameters = command.get_params
    command.get_params = lambda context: with_placeholders(parameters(context), command.callback)
    command.parse_args = _complaining_plainly(command.parse_args)
    for below in getattr(command, "commands", {}).values():
        make_plain(below)


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


def unwrapped(text: str) -> str:
    """One line a paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def with_placeholders(parameters: list[Any], callback: Callable[..., Any] | None) -> list[Any]:
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


def take_old_spellings(command: Any, path: str) -> None:
    """Let this command and those below it read the old names as the new ones."""
    renamed = OLD_SPELLINGS.get(path)
    if renamed is not None:
        command.context_settings["token_normalize_func"] = lambda name: renamed.get(name, name)
    for name, below in getattr(command, "commands", {}).items():
        take_old_spellings(below, f"{path} {name}")
