"""Explain the mistakes in a spec in a user's terms, each with file, line, and key."""

import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gpuyard.errors import SpecError, describe_unknown, did_you_mean, quote
from gpuyard.specs.base import Spec, Unit

T = TypeVar("T")
Location = Sequence[int | str]
_MAX_MISTAKES_SHOWN = 10
_FILE_KINDS = {  # the kind in the names of its files, as in *.workload.yaml
    "Workload": "workload", "Cluster": "cluster", "Study": "study", "Plan": "plan", "Offers": "offers",
    "Site": "site", "SweepFile": "sweep", "Deployment": "deployment", "JobSpec": "job",
}  # fmt: skip


class MappingWithLines(dict[str, Any]):
    """A mapping, and the line of each of its keys."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}

    def update_missing(self, other: Mapping[str, Any], lines: Mapping[str, int]) -> None:
        """Add the keys that are not here yet."""
        for key in other:
            if key not in self:
                self[key], self.lines[key] = other[key], lines[key]


class ListWithLines(list[Any]):
    """A list, and the line of each of its items."""

    lines: list[int]


def build_spec_error(
    path: Path, document: Any, kind: type[Spec], invalid: ValidationError
) -> SpecError:
    """Return an error with one line for each mistake."""
    wrong_kind = _describe_wrong_kind(path, kind)
    return SpecError(wrong_kind or "\n".join(_explain_all(path, document, kind, invalid)))


def _describe_wrong_kind(path: Path, kind: type[Spec]) -> str:
    """Compare the kind in the file's name; in a plan that is read as a cluster, every key would be a mistake."""
    expected, named = _FILE_KINDS.get(kind.__name__), path.name.split(".")[-2:-1]
    if expected is not None and named and named[0] in _FILE_KINDS.values() and named[0] != expected:
        return f"{path}: this is a *.{named[0]}.yaml by its name, expected a *.{expected}.yaml"
    return ""


def _explain_all(
    path: Path, document: Any, kind: type[BaseModel], invalid: ValidationError
) -> Iterator[str]:
    mistakes = _drop_consequences(invalid.errors(include_url=False))
    for mistake in mistakes[:_MAX_MISTAKES_SHOWN]:
        line, keys, value = _locate(document, mistake["loc"], missing=mistake["type"] == "missing")
        prefix = f"{path}:{line}: " + (f"{keys}: " if keys else "")
        yield prefix + _explain(kind, mistake, value)
    if len(mistakes) > _MAX_MISTAKES_SHOWN:
        yield f"{path}: and {len(mistakes) - _MAX_MISTAKES_SHOWN} more"


def _drop_consequences(mistakes: list[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out lists that are too short only because an item in them is wrong."""
    inside = {mistake["loc"][:end] for mistake in mistakes for end in range(len(mistake["loc"]))}
    return [m for m in mistakes if m["type"] != "too_short" or m["loc"] not in inside]


def _locate(document: Any, location: Location, *, missing: bool) -> tuple[int, str, Any]:
    """Return the line of the innermost existing key, the dotted key as users write it, and its value.

    Pydantic's location also names the branch of a union that it tried; the file has no such key.
    """
    node: Any = document
    line, keys = 1, ""
    for position, part in enumerate(location):
        last = position == len(location) - 1
        if isinstance(node, MappingWithLines) and isinstance(part, str) and part in node:
            line = node.lines[part]
            keys += f".{part}" if keys else str(part)
            node = node[part]
        elif isinstance(node, ListWithLines) and isinstance(part, int) and part < len(node):
            line = node.lines[part]
            keys += f"[{part}]"
            node = node[part]
        elif missing and last and isinstance(node, dict) and isinstance(part, str):
            keys += f".{part}" if keys else part
    return line, keys, node


def _explain(kind: type[BaseModel], mistake: ErrorDetails, value: Any) -> str:
    match mistake["type"]:
        case "extra_forbidden":
            return _explain_unknown_key(kind, mistake["loc"])
        case "union_tag_invalid" | "union_tag_not_found":
            return _explain_tag(mistake, value)
        case "string_pattern_mismatch":
            expected = _find_description(kind, mistake["loc"])
            return f"expected {expected}, got {format_value(mistake['input'])}"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            unit = _find_unit(kind, mistake["loc"])
            return explain_value({**mistake, "input": value}, unit.format if unit else None)
        case _:
            return explain_value(mistake)


_COMPLETE_MESSAGES = frozenset({"bad_quantity", "unknown_name", "value_error"})
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
    "too_short": "must have at least {min_length}",
    "too_long": "must have at most {max_length}",
    "string_too_short": "cannot be empty",
}


def explain_value(mistake: ErrorDetails, format_limit: Callable[[float], str] | None = None) -> str:
    """Describe the expected and the actual value in a user's terms, not in pydantic's.

    `format_limit` adds the unit to a limit.
    """
    kind, message, value = (
        mistake["type"],
        mistake["msg"].removeprefix("Value error, "),
        mistake["input"],
    )
    if kind in _COMPLETE_MESSAGES:
        return message
    if kind == "missing":
        return "this is required"
    limits = {
        key: _format_limit(key, limit, format_limit)
        for key, limit in mistake.get("ctx", {}).items()
    }
    if kind == "literal_error":
        return _explain_choice(limits["expected"], value)
    plain = f"{message[0].lower()}{message[1:]}"
    expected = _EXPECTED[kind].format(**limits) if kind in _EXPECTED else plain
    if value is None or value in ([], (), "", {}):
        return expected
    return f"{expected}, got {format_value(value)}"


def _format_limit(key: str, limit: Any, with_unit: Callable[[float], str] | None) -> str:
    if key in {"min_length", "max_length"}:
        return "1 item" if limit == 1 else f"{limit} items"
    if not isinstance(limit, int | float):
        return str(limit)
    if with_unit and limit:
        return with_unit(limit)
    return f"{limit:,.0f}" if float(limit).is_integer() else f"{limit:g}"


def format_value(value: Any) -> str:
    """Format a value as YAML writes it, not as Python does."""
    if isinstance(value, dict):
        return "keys with values"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None or isinstance(value, bool):
        return "nothing" if value is None else str(value).lower()
    return quote(value) if isinstance(value, str) else f"{value}"


def _explain_unknown_key(kind: type[BaseModel], location: Location) -> str:
    """Name the other kinds that allow this key, or the closest key that is allowed here."""
    key, allowed = str(location[-1]), _find_fields(kind, location)
    union, tag = _find_models(kind, location[:-2]), location[-2] if len(location) > 1 else ""
    other_kinds = [tag for model in union if key in model.model_fields for tag in _get_tags(model)]
    if other_kinds and key not in allowed:
        return (
            f"{key!r} is a key of {' and '.join(other_kinds)}, not of {tag}; "
            f"allowed: {', '.join(allowed)}"
        )
    return describe_unknown("key", key, allowed)


def _explain_tag(mistake: ErrorDetails, value: Any) -> str:
    """Explain a wrong or missing key that selects one of several kinds."""
    context = mistake["ctx"]
    key = context["discriminator"].strip("'")
    if "expected_tags" not in context:
        return f"this needs a key {key!r}"
    allowed = [tag.strip(" '") for tag in context["expected_tags"].split(",")]
    actual = value.get(key) if isinstance(value, dict) else value
    if not isinstance(actual, str):
        choices = f"{', '.join(allowed[:-1])} or {allowed[-1]}"
        return f"{key}: expected {choices}, got {format_value(actual)}"
    return describe_unknown(key, actual, allowed)


def _explain_choice(choices: str, value: Any) -> str:
    """Explain a value that is none of the choices, which pydantic passes as "'a', 'b' or 'c'"."""
    unquoted = choices.replace("'", "")
    allowed = unquoted.replace(" or ", ", ").split(", ")
    hint = did_you_mean(value, allowed) if isinstance(value, str) else ""
    return f"expected {unquoted}, got {format_value(value)}{hint}"


def _find_fields(kind: type[BaseModel], location: Location) -> dict[str, FieldInfo]:
    """Return the fields that are allowed at the location of a mistake."""
    models = _find_models(kind, location[:-1])
    return {key: field for model in models for key, field in model.model_fields.items()}


def _find_models(kind: type[BaseModel], location: Location) -> list[type[BaseModel]]:
    """Return the models that are allowed at the location; of a union, the one whose tag is in the location."""
    models = [kind]
    for part in location:
        inner = [
            nested
            for model in models
            if part in model.model_fields
            for nested in _iterate_models(model.model_fields[str(part)].annotation)
        ]
        models = inner or [model for model in models if part in _get_tags(model)] or models
    return models


def _get_tags(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the values of the model's key `kind`, if it is required and so selects the model."""
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field is not None and field.is_required() else ()


def _find_field(kind: type[BaseModel], location: Location) -> tuple[FieldInfo | None, bool]:
    """Return the field of the innermost key, and whether the location ends there and not at a list item."""
    for end in range(len(location), 0, -1):
        field = _find_fields(kind, location[:end]).get(str(location[end - 1]))
        if field is not None:
            return field, end == len(location)
    return None, False


def _find_description(kind: type[BaseModel], location: Location) -> str:
    """Return the description of a list's items if they have one, otherwise that of the field."""
    field, at_field = _find_field(kind, location)
    if field is None:
        return "another spelling"
    items = () if at_field else _iterate_instances(field.annotation, FieldInfo)
    description = next((item.description for item in items if item.description), None)
    return description or field.description or "another spelling"


def _find_unit(kind: type[BaseModel], location: Location) -> Unit | None:
    """Return the unit of a field; list items have the unit of their list."""
    field, _ = _find_field(kind, location)
    if field is None:
        return None
    return next(_iterate_instances((field.annotation, *field.metadata), Unit), None)


def _iterate_instances(annotation: Any, kind: type[T]) -> Iterator[T]:
    if isinstance(annotation, kind):
        yield annotation
    inner = annotation if isinstance(annotation, tuple) else get_args(annotation)
    for part in inner:
        yield from _iterate_instances(part, kind)


def _iterate_models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) in (Union, types.UnionType, Annotated, tuple, list):
        for inner in get_args(annotation):
            yield from _iterate_models(inner)
