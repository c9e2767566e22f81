"""Plain lines of the commands that people repeat all day, like `gpuyard who --json`, which run without typer.

Importing typer and its parser takes longer than these commands themselves. Help, mistakes, and everything that is not
plain go to typer, which calls the same functions.
"""

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from inspect import Parameter, signature
from types import NoneType
from typing import Any, get_args

from gpuyard.cli.show import choose_width

_MAX_DIGITS = 9


def parse_plain(function_path: str, words: Sequence[str]) -> Callable[[], None] | None:
    """Return the call of `module:function` that the words after a command stand for.

    Return None if typer has to parse them.
    """
    module, _, name = function_path.partition(":")
    function = getattr(import_module(module), name)
    parameters = signature(function).parameters.values()
    options = {_format_option(p.name): p for p in parameters if p.kind is Parameter.KEYWORD_ONLY}
    positional = [p for p in parameters if p.kind is not Parameter.KEYWORD_ONLY]
    required = sum(p.default is Parameter.empty for p in positional)
    arguments: list[str] = []
    values: dict[str, Any] = {}
    remaining = iter(words)
    for word in remaining:
        if word == "--wide":
            choose_width(True)
        elif word in options:
            value = _parse_value(options[word].annotation, remaining)
            if value is None:
                return None
            values[options[word].name] = value
        elif not word.startswith("-"):
            arguments.append(word)
        else:
            return None
    if not required <= len(arguments) <= len(positional):
        return None
    return partial(function, *arguments, **values)


def _format_option(name: str) -> str:
    """Return the option of a parameter: `--dry-run` for `dry_run`, `--json` for `json_output`."""
    return "--" + name.removesuffix("_output").rstrip("_").replace("_", "-")


def _parse_value(annotation: Any, remaining: Any) -> Any:
    """Return True for a flag, or the next word as a count; None if typer has to explain what is wrong."""
    if annotation is bool:
        return True
    text = next(remaining, "")
    if set(get_args(annotation)) == {int, NoneType} and len(text) <= _MAX_DIGITS:
        return int(text) or None if text.isascii() and text.isdecimal() else None
    return None
