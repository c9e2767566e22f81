"""Read specs from YAML: check untrusted text, convert it to plain values that know their lines, and validate these.

Nothing is constructed by a tag. Dates stay text until the key that they belong to parses them, and every key is text.
Limits on size, depth, and repeated aliases are enforced before values are built.
"""

from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from gpuyard.errors import SpecError, quote
from gpuyard.files import read_text
from gpuyard.specs.base import KnownNames, Spec
from gpuyard.specs.spec_errors import (
    ListWithLines,
    MappingWithLines,
    build_spec_error,
    format_value,
)

S = TypeVar("S", bound=Spec)

_MAX_BYTES = 200_000
_MAX_VALUES = 20_000  # counted as often as aliases repeat them
_MAX_DEPTH = 30
_MAX_DIGITS = 40
_STANDARD = "tag:yaml.org,2002:"


def read_spec(path: Path, kind: type[S], names: KnownNames | None = None) -> S:
    """Read and check one spec file. Raise a SpecError that lists every mistake."""
    return parse_spec(read_text(path, SpecError, max_bytes=_MAX_BYTES), path, kind, names)


def parse_spec(text: str, path: Path, kind: type[S], names: KnownNames | None = None) -> S:
    """Check the text of a spec; errors name the file that it is, or will be, in."""
    document = read_yaml(text, str(path))
    if not isinstance(document, dict):
        raise SpecError(
            f"{path}: expected keys with values, like name: mine, got {format_value(document)}"
        )
    try:
        return kind.model_validate(document, context=names)
    except ValidationError as invalid:
        raise build_spec_error(path, document, kind, invalid) from None


def read_yaml(text: str, name: str) -> Any:
    """Return the only document of the text. Raise a SpecError with line and column if it is unusable."""
    from ruamel.yaml import YAML
    from ruamel.yaml.composer import MaxDepthExceededError
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    yaml = YAML(typ="safe", pure=True)
    yaml.max_depth = _MAX_DEPTH
    yaml.composer.warn_double_anchors = (
        False  # YAML allows a later anchor to replace an earlier one
    )
    try:
        root = yaml.compose(text)
    except MaxDepthExceededError as deep:
        raise _error_at(
            deep.problem_mark, name, f"nested deeper than {_MAX_DEPTH} levels"
        ) from None
    except MarkedYAMLError as broken:
        mark = broken.problem_mark or broken.context_mark
        raise _error_at(mark, name, f"this is not valid YAML: {_describe(broken)}") from None
    except YAMLError as broken:
        raise SpecError(f"{name}: this is not valid YAML: {str(broken).splitlines()[0]}") from None
    except (ValueError, OverflowError) as broken:  # an escape beyond Unicode
        raise SpecError(f"{name}: this is not valid YAML: {broken}") from None
    return None if root is None else _ValueBuilder(name, yaml.constructor).build(root)


def _describe(broken: Any) -> str:
    # ruamel adds a note for programmers after the first line of some problems
    problem = str(broken.problem or broken.context).splitlines()[0]
    if "'\\t'" in problem:
        return "a tab stands here; indent with spaces"
    problem = problem.replace("'<stream end>'", "the end of the file")
    return f"{broken.context} {problem}" if problem.startswith("but ") else problem


def _error_at(mark: Any, name: str, message: str) -> SpecError:
    position = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
    return SpecError(f"{name}{position}: {message}")


class _ValueBuilder:
    """Converts the nodes of one document to plain values, and counts them."""

    def __init__(self, name: str, constructor: Any) -> None:
        self._name = name
        self._constructor = constructor
        self._count = 0
        self._built: dict[
            int, tuple[Any, int]
        ] = {}  # by node: its value and how many it has inside
        self._unfinished: set[int] = set()

    def build(self, node: Any) -> Any:
        from ruamel.yaml.nodes import MappingNode, SequenceNode

        if id(node) in self._unfinished:
            raise self._error(node, f"{quote(node.anchor)} contains itself")
        if id(node) in self._built:  # the node of an alias is that of its anchor
            value, size = self._built[id(node)]
            self._add_to_count(size, node)
            return value
        count_before = self._count
        self._unfinished.add(id(node))
        self._add_to_count(1, node)
        if isinstance(node, MappingNode):
            value = self._build_mapping(node)
        elif isinstance(node, SequenceNode):
            value = self._build_list(node)
        else:
            value = self._build_scalar(node)
        self._unfinished.remove(id(node))
        self._built[id(node)] = value, self._count - count_before
        return value

    def _add_to_count(self, size: int, node: Any) -> None:
        self._count += size
        if self._count > _MAX_VALUES:
            raise self._error(
                node,
                f"more than {_MAX_VALUES:,} values, aliases counted as often as they are used",
            )

    def _build_list(self, node: Any) -> ListWithLines:
        self._check_tag(node, "seq")
        items = ListWithLines(self.build(item) for item in node.value)
        items.lines = [_line(item) for item in node.value]
        return items

    def _build_mapping(self, node: Any) -> MappingWithLines:
        self._check_tag(node, "map")
        mapping, merged = MappingWithLines(), MappingWithLines()
        for key_node, value_node in node.value:
            if key_node.tag == f"{_STANDARD}merge":
                for source in self._build_merge_sources(value_node):
                    merged.update_missing(source, dict.fromkeys(source, _line(key_node)))
                continue
            self.build(key_node)
            key = key_node.value  # as it is written: 1 and true are text here
            if not isinstance(key, str):
                raise self._error(key_node, "a key must be a word, not a list or keys with values")
            if key in mapping:
                raise self._error(
                    key_node,
                    f"duplicate key {quote(key)}, first used in line {mapping.lines[key]}",
                )
            mapping[key], mapping.lines[key] = self.build(value_node), _line(key_node)
        mapping.update_missing(merged, merged.lines)
        return mapping

    def _build_merge_sources(self, node: Any) -> list[MappingWithLines]:
        value = self.build(node)
        sources = value if isinstance(value, ListWithLines) else [value]
        if not all(isinstance(source, MappingWithLines) for source in sources):
            raise self._error(node, "<< accepts keys with values, or a list of them")
        return sources

    def _build_scalar(self, node: Any) -> Any:
        text: str = node.value
        self._check_tag(node, "str", "int", "float", "bool", "null", "timestamp", "merge", "value")
        kind = str(node.tag).removeprefix(_STANDARD)
        if kind in ("int", "float") and len(text) > _MAX_DIGITS:
            raise self._error(node, f"a number of {len(text):,} characters is too long")
        try:
            match kind:
                case "null":
                    return None
                case "bool":
                    return self._constructor.construct_yaml_bool(node)
                case "int":
                    return self._constructor.construct_yaml_int(node)
                case "float":
                    return self._constructor.construct_yaml_float(node)
        except (ValueError, IndexError, KeyError):  # nothing but underscores behind a prefix
            pass
        return text

    def _check_tag(self, node: Any, *allowed: str) -> None:
        if node.tag not in [_STANDARD + kind for kind in allowed]:
            raise self._error(node, f"the tag {quote(str(node.tag))} is not supported")

    def _error(self, node: Any, message: str) -> SpecError:
        return _error_at(node.start_mark, self._name, message)


def _line(node: Any) -> int:
    return int(node.start_mark.line) + 1
