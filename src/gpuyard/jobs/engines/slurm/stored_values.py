"""Dataclasses from the JSON files of a job. Importing pydantic takes longer than `gpuyard queue` itself."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

Stored = TypeVar("Stored")


def build(kind: type[Stored], document: Mapping[str, Any]) -> Stored:
    """Build a dataclass; raise TypeError if a value is missing or has another type. Other keys are ignored."""
    if not isinstance(document, Mapping):
        raise TypeError(f"{kind.__name__} must be a mapping")
    hints = get_type_hints(kind)
    names = [field.name for field in fields(kind) if field.name in document]  # type: ignore[arg-type]
    return kind(**{name: _decode(hints[name], document[name]) for name in names})


def _decode(hint: Any, value: Any) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if origin is UnionType:
        if value is None:
            return value
        (hint,) = (part for part in parts if part is not NoneType)
        return _decode(hint, value)
    if origin is tuple and isinstance(value, list):
        return tuple(_decode(parts[0], item) for item in value)
    if is_dataclass(hint) and isinstance(hint, type):
        return build(hint, value)
    if hint is float and type(value) is int:
        return float(value)
    allowed = value in parts if origin is Literal else isinstance(value, origin or hint)
    if isinstance(value, bool) and hint is not bool:
        allowed = False
    if not allowed:
        raise TypeError(f"{value!r} is not {hint}")
    return value
