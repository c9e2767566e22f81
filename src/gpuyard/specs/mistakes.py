"""What is wrong with a spec, as a sentence with file, line and key."""

import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gpuyard.errors import SpecError, describe_unknown, did_you_mean, quoted
from gpuyard.specs.base import Spec, Unit

T = TypeVar("T")
_MOST_MISTAKES_SHOWN = 10
_KINDS = {  # how files of each are named
    "Workload": "workload", "Cluster": "cluster", "Study": "study", "Plan": "plan", "Offers": "offers",
    "Site": "site", "SweepFile": "sweep", "Deployment": "deployment", "JobSpec": "job",
}  # fmt: skip


class NumberedKeys(dict[str, Any]):
    """A mapping, and the line of each of its keys."""

    lines: dict[str, int]


class NumberedItems(list[Any]):
    """A list, and the line of each of its items."""

    lines: list[int]


def mistakes_in(path: Path, document: Any, kind: type[Spec], invalid: ValidationError) -> SpecError:
    """All that was found, a line each."""
    other = _other_kind(path, kind)
    return SpecError(other or "\n".join(_sentences(path, document, kind, invalid)))


def _other_kind(path: Path, kind: type[Spec]) -> str:
    """A plan where a cluster is asked for: every one of its keys would be a mistake of its own."""
    wanted, named = _KINDS.get(kind.__name__), path.name.split(".")[-2:-1]
    if wanted is not None and named and named[0] in _KINDS.values() and named[0] != wanted:
        return f"{path}: this is a *.{named[0]}.yaml by its name, expected a *.{wanted}.yaml"
    return ""


def _sentences(
    path: Path, document: Any, kind: type[BaseModel], invalid: ValidationError
) -> Iterator[str]:
    mistakes = _told_once(invalid.errors(include_url=False))
    for mistake in mistakes[:_MOST_MISTAKES_SHOWN]:
        line, keys, written = _locate(document, mistake["loc"])
        where = f"{path}:{line}: " + (f"{keys}: " if keys else "")
        yield where + _explain(kind, mistake, written)
    if len(mistakes) > _MOST_MISTAKES_SHOWN:
        yield f"{path}: and {len(mistakes) - _MOST_MISTAKES_SHOWN} more"


def _told_once(mistakes: list[ErrorDetails]) -> list[ErrorDetails]:
    """Without lists that are too short only because what is in them is wrong."""
    inside = {mistake["loc"][:end] for mistake in mistakes for end in range(len(mistake["loc"]))}
    return [m for m in mistakes if m["type"] != "too_short" or m["loc"] not in inside]


def _locate(document: Any, loc: Sequence[int | str]) -> tuple[int, str, Any]:
    """The line of the innermost key that exists, the dotted key as the user would write it, and what is there.

    Pydantic's location also names the branch of a union that it tried; no such key is in the file.
    """
    node: Any = document
    line, keys = 1, ""
    for position, part in enumerate(loc):
        last = position == len(loc) - 1
        if isinstance(node, NumberedKeys) and isinstance(part, str) and part in node:
            line = node.lines[part]
            keys += f".{part}" if keys else str(part)
            node = node[part]
        elif isinstance(node, NumberedItems) and isinstance(part, int) and part < len(node):
            line = node.lines[part]
            keys += f"[{part}]"
            node = node[part]
        elif last and isinstance(node, dict) and isinstance(part, str):
            keys += f".{part}" if keys else part
    return line, keys, node


def _explain(kind: type[BaseModel], mistake: ErrorDetails, written: Any) -> str:
    match mistake["type"]:
        case "extra_forbidden":
            return _explain_key(kind, mistake["loc"])
        case "union_tag_invalid" | "union_tag_not_found":
            return _explain_tag(mistake, written)
        case "string_pattern_mismatch":
            return f"expected {_described_at(kind, mistake['loc'])}, got {shown(mistake['input'])}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            unit = _unit_at(kind, mistake["loc"])
            return expected_and_got({**mistake, "input": written}, unit.show if unit else None)
        case _:
            return expected_and_got(mistake)


_OWN_WORDS = frozenset({"bad_quantity", "unknown_name", "value_error"})
_EXPECTED = {
    "int_type": "expected a whole number",
    "int_parsing": "expected a whole number",
    "int_from_float": "expected a whole number",
    "int_parsing_size": "expected a smaller number",
    "float_type": "expected a number",
    "float_parsing": "expected a number",
    "finite_number": "expected a finite number",
    "bool_type": "expected true or false",
    "bool_parsing": "expected true or false",
    "string_type": "expected text",
    "date_type": "expected a day like 2026-01-31",
    "date_parsing": "expected a day like 2026-01-31",
    "date_from_datetime_parsing": "expected a day like 2026-01-31",
    "tuple_type": "expected a list like [a, b]",
    "list_type": "expected a list like [a, b]",
    "model_type": "expected keys with values like {{key: value}}",
    "model_attributes_type": "expected keys with values like {{key: value}}",
    "dict_type": "expected keys with values like {{key: value}}",
    "greater_than": "must be above {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be {le} or less",
    "too_short": "needs at least {min_length}",
    "too_long": "takes at most {max_length}",
    "string_too_short": "can't be empty",
}


def expected_and_got(mistake: ErrorDetails, show: Callable[[float], str] | None = None) -> str:
    """What belongs there and what was found, for what pydantic says in the words of programmers.

    `show` puts the unit to a limit.
    """
    kind, message, got = (
        mistake["type"],
        mistake["msg"].removeprefix("Value error, "),
        mistake["input"],
    )
    if kind in _OWN_WORDS:
        return message
    if kind == "missing":
        return "this is required"
    limits = {key: _limit(key, limit, show) for key, limit in mistake.get("ctx", {}).items()}
    if kind == "literal_error":
        return _one_of(limits["expected"], got)
    plain = f"{message[0].lower()}{message[1:]}"
    expected = _EXPECTED[kind].format(**limits) if kind in _EXPECTED else plain
    return expected if got is None or got in ([], (), "", {}) else f"{expected}, got {shown(got)}"


def _limit(key: str, limit: Any, show: Callable[[float], str] | None) -> str:
    if key in {"min_length", "max_length"}:
        return "1 item" if limit == 1 else f"{limit} items"
    if not isinstance(limit, int | float):
        return str(limit)
    if show and limit:
        return show(limit)
    return f"{limit:,.0f}" if float(limit).is_integer() else f"{limit:g}"


def shown(value: Any) -> str:
    """As YAML has it, not as Python has."""
    if isinstance(value, dict):
        return "keys with values"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    return quoted(value) if isinstance(value, str) else f"{value}"


def _explain_key(kind: type[BaseModel], loc: Sequence[int | str]) -> str:
    """A key that is not allowed there, and may be where something else is described."""
    key, here = str(loc[-1]), _fields_at(kind, loc)
    union, tag = _models_at(kind, loc[:-2]), loc[-2] if len(loc) > 1 else ""
    having = [name for model in union if key in model.model_fields for name in _tags(model)]
    if having and key not in here:
        return (
            f"{key!r} is a key of {' and '.join(having)}, not of {tag}; it has: {', '.join(here)}"
        )
    return describe_unknown("key", key, here)


def _explain_tag(mistake: ErrorDetails, written: Any) -> str:
    """The key that says which of several kinds this is."""
    known = mistake["ctx"]
    key = known["discriminator"].strip("'")
    if "expected_tags" not in known:
        return f"this needs a key {key!r}"
    allowed = [tag.strip(" '") for tag in known["expected_tags"].split(",")]
    got = written.get(key) if isinstance(written, dict) else written
    if not isinstance(got, str):
        return f"{key}: expected {_or(allowed)}, got {shown(got)}"
    return describe_unknown(key, got, allowed)


def _or(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}"


def _one_of(quoted: str, got: Any) -> str:
    """What is allowed comes as "'a', 'b' or 'c'"."""
    listed = quoted.replace("'", "")
    allowed = listed.replace(" or ", ", ").split(", ")
    hint = did_you_mean(got, allowed) if isinstance(got, str) else ""
    return f"expected {listed}, got {shown(got)}{hint}"


def _fields_at(kind: type[BaseModel], loc: Sequence[int | str]) -> dict[str, FieldInfo]:
    """The keys that are allowed where the mistake is."""
    models = _models_at(kind, loc[:-1])
    return {key: field for model in models for key, field in model.model_fields.items()}


def _models_at(kind: type[BaseModel], loc: Sequence[int | str]) -> list[type[BaseModel]]:
    """The models that may stand there; of a union, the one whose tag is in the location."""
    models = [kind]
    for part in loc:
        inner = [
            nested
            for model in models
            if part in model.model_fields
            for nested in _models_in(model.model_fields[str(part)].annotation)
        ]
        models = inner or [model for model in models if part in _tags(model)] or models
    return models


def _tags(model: type[BaseModel]) -> tuple[str, ...]:
    """What its key `kind` says, if it has one that tells it from others."""
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field is not None and field.is_required() else ()


def _field_at(kind: type[BaseModel], loc: Sequence[int | str]) -> tuple[FieldInfo | None, bool]:
    """Of the innermost key of the location, and whether that is its end: what is in a list has no key of its own."""
    for end in range(len(loc), 0, -1):
        field = _fields_at(kind, loc[:end]).get(str(loc[end - 1]))
        if field is not None:
            return field, end == len(loc)
    return None, False


def _described_at(kind: type[BaseModel], loc: Sequence[int | str]) -> str:
    """What belongs there; of a list, what its items are, else what it is for."""
    field, own = _field_at(kind, loc)
    if field is None:
        return "another spelling"
    items = () if own else _found_in(field.annotation, FieldInfo)
    described = next((item.description for item in items if item.description), None)
    return described or field.description or "another spelling"


def _unit_at(kind: type[BaseModel], loc: Sequence[int | str]) -> Unit | None:
    """A figure in a list has its list's."""
    field, _ = _field_at(kind, loc)
    return next(_found_in((field.annotation, *field.metadata), Unit), None) if field else None


def _found_in(annotation: Any, what: type[T]) -> Iterator[T]:
    if isinstance(annotation, what):
        yield annotation
    inner = annotation if isinstance(annotation, tuple) else get_args(annotation)
    for part in inner:
        yield from _found_in(part, what)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated, tuple, list):
        for inner in get_args(annotation):
            yield from _models_in(inner)
