"""YAML in, specs out: text of unknown origin becomes plain values that know their lines, and these a spec.

Values are built from the parser's events, one at a time, so that what would exhaust the machine is refused
before anything is made of it: a file may be long, deep, or short and grow by its aliases. No tag makes an
object, a date stays text until the key that it belongs to reads it, and every key is text.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gpuyard.errors import SpecError, quoted
from gpuyard.files import read_text
from gpuyard.specs.base import KnownNames, Spec
from gpuyard.specs.mistakes import NumberedItems, NumberedKeys, mistakes_in, shown

S = TypeVar("S", bound=Spec)

_MOST_BYTES = 200_000
_MOST_VALUES = 20_000  # counted as often as aliases repeat them
_DEEPEST = 30
_MOST_DIGITS = 40
_STANDARD = "tag:yaml.org,2002:"
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|[0-9][0-9_]*)")
_FLOAT = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def read_spec(path: Path, kind: type[S], names: KnownNames | None = None) -> S:
    """Read and check one spec file. Raises SpecError; every mistake found is in its message."""
    document = read_yaml(read_text(path, SpecError, most_bytes=_MOST_BYTES), str(path))
    if not isinstance(document, dict):
        raise SpecError(
            f"{path}: expected keys with values, like name: mine, got {shown(document)}"
        )
    try:
        return kind.model_validate(document, context=names)
    except ValidationError as invalid:
        raise mistakes_in(path, document, kind, invalid) from None


def read_yaml(text: str, name: str) -> Any:
    """The one document of the text; a `SpecError` with line and column where it can't be used."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return _document(YAML(typ="safe", pure=True).parse(text), name)
    except MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        # ruamel adds a note for programmers after the first line of some problems
        problem = str(broken.problem or broken.context).splitlines()[0]
        if "'\\t'" in problem:
            problem = "a tab stands here; indent with spaces"
        raise SpecError(f"{where}: this is not valid YAML: {problem}") from None
    except YAMLError as broken:
        raise SpecError(f"{name}: this is not valid YAML: {str(broken).splitlines()[0]}") from None
    except (ValueError, OverflowError) as broken:  # an escape beyond Unicode
        raise SpecError(f"{name}: this is not valid YAML: {broken}") from None


def _mistake(name: str, event: Any, sentence: str) -> SpecError:
    mark = event.start_mark
    return SpecError(f"{name}:{mark.line + 1}:{mark.column + 1}: {sentence}")


_TOO_MANY = f"more than {_MOST_VALUES:,} values, aliases counted as often as they are used"


@dataclass
class _Made:
    """What an event became, and how many values it has inside."""

    value: Any
    size: int
    event: Any
    merges: bool = False  # the key <<


@dataclass
class _Open:
    """A list or a mapping whose end has not come yet."""

    event: Any
    parts: list[_Made] = field(default_factory=list)


def _document(events: Iterable[Any], name: str) -> Any:
    from ruamel.yaml import events as kinds

    documents: list[_Made] = []
    opened = [_Open(None, documents)]
    anchors: dict[str, _Made | None] = {}  # None: it is still open
    total = 0
    for event in events:
        match event:
            case kinds.DocumentStartEvent() if documents:
                raise _mistake(name, event, "this is not valid YAML: expected a single document")
            case kinds.CollectionStartEvent():
                if len(opened) > _DEEPEST:
                    raise _mistake(name, event, f"nested deeper than {_DEEPEST} levels")
                _refuse_tag(event, name)
                if event.anchor:
                    anchors[event.anchor] = None
                opened.append(_Open(event))
                continue
            case kinds.CollectionEndEvent():
                made = _collected(opened.pop(), name)
            case kinds.AliasEvent():
                made = _repeated(event, anchors, name)
            case kinds.ScalarEvent():
                made = _Made(_scalar(event, name), 1, event, _is_merge(event))
            case _:
                continue
        start = made.event
        if start.anchor and not isinstance(event, kinds.AliasEvent):
            anchors[start.anchor] = made
        total += made.size if isinstance(event, kinds.AliasEvent) else 1
        if total > _MOST_VALUES:
            raise _mistake(name, event, _TOO_MANY)
        opened[-1].parts.append(made)
    return documents[0].value if documents else None


def _repeated(event: Any, anchors: dict[str, _Made | None], name: str) -> _Made:
    if event.anchor not in anchors:
        raise _mistake(name, event, f"no anchor is called {quoted(event.anchor)}")
    made = anchors[event.anchor]
    if made is None:
        raise _mistake(name, event, f"{quoted(event.anchor)} contains itself")
    return _Made(made.value, made.size, event)


def _collected(done: _Open, name: str) -> _Made:
    from ruamel.yaml.events import MappingStartEvent

    size = 1 + sum(part.size for part in done.parts)
    value: NumberedItems | NumberedKeys
    if isinstance(done.event, MappingStartEvent):
        value = _keys(done.parts, name)
    else:
        value = NumberedItems(part.value for part in done.parts)
        value.lines = [part.event.start_mark.line + 1 for part in done.parts]
    return _Made(value, size, done.event)


def _keys(parts: list[_Made], name: str) -> NumberedKeys:
    found, merged = NumberedKeys(), NumberedKeys()
    found.lines, merged.lines = {}, {}
    for key, value in zip(parts[::2], parts[1::2], strict=True):
        line = key.event.start_mark.line + 1
        if key.merges:
            for keys in _merged(value, name):
                for one in keys:
                    if one not in merged:
                        merged[one], merged.lines[one] = keys[one], line
            continue
        word = getattr(key.event, "value", key.value)  # of 1 and true, as they are written
        if not isinstance(word, str):
            raise _mistake(name, key.event, "a key must be a word, not a list or keys with values")
        if word in found:
            first = found.lines[word]
            raise _mistake(
                name, key.event, f"the key {quoted(word)} is there twice, first in line {first}"
            )
        found[word], found.lines[word] = value.value, line
    for one in merged:
        if one not in found:
            found[one], found.lines[one] = merged[one], merged.lines[one]
    return found


def _merged(value: _Made, name: str) -> list[NumberedKeys]:
    listed = value.value if isinstance(value.value, NumberedItems) else [value.value]
    if not all(isinstance(keys, NumberedKeys) for keys in listed):
        raise _mistake(name, value.event, "<< takes keys with values, or a list of such")
    return listed


def _is_merge(event: Any) -> bool:
    return bool(event.value == "<<" and event.implicit[0])


def _refuse_tag(event: Any, name: str) -> None:
    if event.tag and event.tag not in (_STANDARD + "map", _STANDARD + "seq", "!"):
        raise _mistake(name, event, f"the tag {quoted(event.tag)} means nothing here")


def _scalar(event: Any, name: str) -> Any:
    text: str = event.value
    kind = str(event.tag).removeprefix(_STANDARD) if event.tag else None
    if kind not in (None, "!", "str", "int", "float", "bool", "null"):
        raise _mistake(name, event, f"the tag {quoted(event.tag)} means nothing here")
    if kind in ("!", "str") or (kind is None and not event.implicit[0]):
        return text
    if text in _WORDS:
        return _WORDS[text]
    if not (_INTEGER.fullmatch(text) or _FLOAT.fullmatch(text) or _NOT_FINITE.fullmatch(text)):
        return text
    if len(text) > _MOST_DIGITS:
        raise _mistake(name, event, f"a number of {len(text):,} characters is too long")
    return _number(text.replace("_", ""))


def _number(text: str) -> Any:
    if _NOT_FINITE.fullmatch(text):
        return float(text.replace(".", ""))
    if not _INTEGER.fullmatch(text):
        return float(text)
    sign = -1 if text.startswith("-") else 1
    digits = text.lstrip("+-")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2], 10)
    try:
        return sign * int(digits if base == 10 else digits[2:], base)
    except ValueError:  # nothing but underscores behind its prefix
        return text
