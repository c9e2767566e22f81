"""YAML in, specs out; a mistake becomes a sentence with file, line and key."""

import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gpuyard.errors import SpecError, describe_unknown
from gpuyard.specs.base import KnownNames, Spec

S = TypeVar("S", bound=Spec)
_MOST_MISTAKES_SHOWN = 10


def read_spec(path: Path, kind: type[S], names: KnownNames | None = None) -> S:
    """Read and check one spec file. Raises SpecError; every mistake found is in its message."""
    document = _read_yaml(path)
    if not isinstance(document, dict):
        found = "nothing" if document is None else f"a {type(document).__name__}"
        raise SpecError(
            f"{path}: a {kind.__name__.lower()} spec is a mapping of keys, this file holds {found}"
        )
    try:
        return kind.model_validate(_plain(document), context=names)
    except ValidationError as invalid:
        raise SpecError("\n".join(_sentences(path, document, kind, invalid))) from None


def _read_yaml(path: Path) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise SpecError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise SpecError(f"{path}: this is a directory, not a spec file") from None
    except (OSError, UnicodeDecodeError) as unreadable:
        raise SpecError(f"{path}: cannot be read as text ({unreadable})") from None
    try:
        return YAML(typ="rt").load(
            text
        )  # round-trip: keeps the line of every key, builds no objects
    except MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        where = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        # ruamel adds a note for programmers after the first line of some problems
        problem = str(broken.problem or broken.context).splitlines()[0]
        raise SpecError(f"{where}: this is not valid YAML: {problem}") from None
    except YAMLError as broken:
        raise SpecError(f"{path}: this is not valid YAML: {str(broken).splitlines()[0]}") from None


def _plain(node: Any) -> Any:
    """Without ruamel's own types, so that pydantic sees only dicts, lists and scalars."""
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    for scalar in (bool, int, float, str):
        if isinstance(node, scalar):
            return scalar(node)
    return node


def _sentences(
    path: Path, document: Any, kind: type[BaseModel], invalid: ValidationError
) -> Iterator[str]:
    mistakes = _told_once(invalid.errors(include_url=False))
    for mistake in mistakes[:_MOST_MISTAKES_SHOWN]:
        line, keys = _locate(document, mistake["loc"])
        where = f"{path}:{line}: " + (f"{keys}: " if keys else "")
        yield where + _explain(kind, mistake)
    if len(mistakes) > _MOST_MISTAKES_SHOWN:
        yield f"{path}: and {len(mistakes) - _MOST_MISTAKES_SHOWN} more"


def _told_once(mistakes: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without lists that are too short only because what is in them is wrong."""
    inside = {mistake["loc"][:end] for mistake in mistakes for end in range(len(mistake["loc"]))}
    return [m for m in mistakes if m["type"] != "too_short" or m["loc"] not in inside]


def _locate(document: Any, loc: Sequence[int | str]) -> tuple[int, str]:
    """The line of the innermost key that exists, and the dotted key as the user would write it.

    Pydantic's location also names the branch of a union that it tried; no such key is in the file.
    """
    node: Any = document
    line, keys = 1, ""
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(node, dict) and part in node:
            line = _marks(node).key(part)[0] + 1
            keys += f".{part}" if keys else str(part)
            node = node[part]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            line = _marks(node).item(part)[0] + 1
            keys += f"[{part}]"
            node = node[part]
        elif last and isinstance(node, dict) and isinstance(part, str):
            keys += f".{part}" if keys else part
    return line, keys


def _marks(node: Any) -> Any:
    return node.lc  # ruamel's line and column of every key and item


def _explain(kind: type[BaseModel], mistake: ErrorDetails) -> str:
    message = mistake["msg"].removeprefix("Value error, ")
    match mistake["type"]:
        case "extra_forbidden":
            return describe_unknown(
                "key", str(mistake["loc"][-1]), _keys_at(kind, mistake["loc"][:-1])
            )
        case "missing":
            return "this key is needed"
        case "union_tag_invalid" | "union_tag_not_found":
            return _explain_tag(mistake)
        case "bad_quantity" | "unknown_name" | "value_error":
            return message
        case "literal_error":
            allowed = [
                a.strip(" '") for a in mistake["ctx"]["expected"].replace(" or ", ",").split(",")
            ]
            return describe_unknown("value here", str(mistake["input"]), allowed)
        case _:
            wanted = _wanted(mistake) or f"{message[0].lower()}{message[1:]}"
            return wanted if _is_empty(mistake["input"]) else f"{wanted}, not {mistake['input']!r}"


_WANTED = {
    "int_type": "this is a whole number",
    "int_parsing": "this is a whole number",
    "int_from_float": "this is a whole number",
    "float_type": "this is a number",
    "float_parsing": "this is a number",
    "finite_number": "this is a finite number",
    "bool_type": "this is true or false",
    "bool_parsing": "this is true or false",
    "string_type": "this is text",
    "tuple_type": "this is a list, like [a, b]",
    "list_type": "this is a list, like [a, b]",
    "model_type": "this is a mapping of keys, like {{key: value}}",
    "dict_type": "this is a mapping of keys, like {{key: value}}",
    "greater_than": "it must be above {gt:g}",
    "greater_than_equal": "it must be {ge:g} or more",
    "less_than": "it must be below {lt:g}",
    "less_than_equal": "it can be up to {le:g}",
    "too_short": "at least {min_length} needed",
    "too_long": "it has at most {max_length}",
    "string_too_short": "this can't be empty",
}


def _wanted(mistake: ErrorDetails) -> str | None:
    """What belongs there, for what pydantic says in the words of programmers."""
    figures = dict(mistake.get("ctx", {}))
    if mistake["type"] == "too_short":
        least = figures["min_length"]
        figures["min_length"] = f"{least} item{'s are' if least > 1 else ' is'}"
    return _WANTED[mistake["type"]].format(**figures) if mistake["type"] in _WANTED else None


def _is_empty(value: Any) -> bool:
    return value is None or value in ([], (), "", {})


def _explain_tag(mistake: ErrorDetails) -> str:
    """The key that says which of several kinds this is."""
    known = mistake["ctx"]
    if "expected_tags" not in known:
        return f"this needs a key {known['discriminator']}"
    allowed = [tag.strip(" '") for tag in known["expected_tags"].split(",")]
    return describe_unknown(known["discriminator"].strip("'"), str(known["tag"]), allowed)


def _keys_at(kind: type[BaseModel], loc: Sequence[int | str]) -> set[str]:
    """The keys that are allowed at a place in a spec."""
    models = [kind]
    for part in loc:
        inner = [
            nested
            for model in models
            if part in model.model_fields
            for nested in _models_in(model.model_fields[str(part)].annotation)
        ]
        models = inner or models
    return {key for model in models for key in model.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated, tuple, list):
        for inner in get_args(annotation):
            yield from _models_in(inner)
