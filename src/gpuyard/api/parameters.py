"""Options of the command line as parameters of Python: messages name `--on 8xh100`, and Python writes `on='8xh100'`."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import ParamSpec, TypeVar

from gpuyard.errors import GpuyardError
from gpuyard.report.answer import Answer, Card, CardRow, Part, RendererOnly, Section, Sentence

P = ParamSpec("P")
T = TypeVar("T")

_OTHER_NAMES = {"all": "all_", "as": "export_format", "from": "file"}
_COMMAND = r"`[^`]*`|\b(?:gpuyard|torchrun|deepspeed|accelerate) (?:[^;,()\n]|,(?=\w))*"
# a word is a value only if it looks like one: `--on 8xh100` but not `--on is missing`
_VALUE = r"'[^']*'|[^\s,;()']*[\d.@][^\s,;()']*[\w%]|\d+|[A-Z]+\b"
_OPTION = re.compile(rf"({_COMMAND})|(?<![\w-])--([a-z][a-z-]*)(?:=([\w.%-]+)|\s({_VALUE}))?")


def name_parameters(text: str) -> str:
    """Replace the options in a message by parameters; commands for a shell stay as they are."""

    def rename(match: re.Match[str]) -> str:
        command, option, assigned, word = match.groups()
        if command:
            return str(command)
        name = _OTHER_NAMES.get(option, option.replace("-", "_"))
        value = (assigned or word or "").strip("'")
        if not value:
            return name
        is_plain = value.isdecimal() or (value.isalpha() and value.isupper())
        return f"{name}={value if is_plain else repr(value)}"

    return _OPTION.sub(rename, text.replace("Add --why ", "Call .why() "))


def with_parameters(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function as Python programs call it: its errors name parameters instead of options."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except GpuyardError as error:
            error.args = (name_parameters(str(error)), *error.args[1:])
            raise

    return call


def answer_with_parameters(answer: Answer) -> Answer:
    """Return the answer with sentences that name parameters instead of options."""
    return replace(answer, parts=_rename_in(answer.parts))


def _rename_in(parts: Sequence[Part]) -> list[Part]:
    return [_rename_in_part(part) for part in parts]


def _rename_in_part(part: Part) -> Part:
    match part:
        case Sentence():
            return replace(part, text=name_parameters(part.text))
        case Section() | Card() | RendererOnly():
            return replace(part, parts=_rename_in(part.parts))
        case CardRow():
            cards = [replace(card, parts=_rename_in(card.parts)) for card in part.cards]
            return replace(part, cards=cards)
    return part
