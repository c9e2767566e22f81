"""Check whether the API server would accept a manifest: its full schema, without unknown fields."""

import functools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from referencing import Registry, Resource

_SHIPPED = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
_SHIPPED_VERSIONS = re.findall(
    r"v(1\.\d+\.0)-local-strict", " ".join(path.name for path in _SHIPPED.iterdir())
)
VERSIONS = sorted(version for version in _SHIPPED_VERSIONS if version >= "1.29.0")
"""The versions that the docs name."""
_KUBEFLOW_SCHEMAS = Path(__file__).parent / "schemas"
_KUBEFLOW_KINDS = ("TrainJob", "PyTorchJob")


def _check_unique(
    _: Any, keys: list[str], items: Any, __: Any
) -> Iterator[jsonschema.ValidationError]:
    """Check a list that the API server keeps as a map, which JSON Schema cannot express."""
    if not isinstance(items, list):
        return
    rows = [[item.get(key) for key in keys] for item in items if isinstance(item, dict)]
    for index, values in enumerate(rows):
        if values in rows[:index]:
            yield jsonschema.ValidationError(f"two items have the same {', '.join(keys)}: {values}")


_VALIDATOR = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"x-kubernetes-list-map-keys": _check_unique}
)


def problems(manifest: dict[str, Any], version: str = VERSIONS[-1]) -> list[str]:
    """Return the problems of a manifest; none if it is valid."""
    checker = _checker(manifest["kind"], manifest["apiVersion"], version)
    return [f"{error.json_path}: {error.message[:300]}" for error in checker.iter_errors(manifest)]


@functools.cache
def _checker(kind: str, api_version: str, version: str) -> Any:
    if kind in _KUBEFLOW_KINDS:
        schema = _read(_KUBEFLOW_SCHEMAS / f"{kind.lower()}.schema.json")
    else:
        group = api_version.partition(".")[0].replace("/", "-")
        schema = _read(_folder(version) / f"{kind.lower()}-{group}.json")
        schema["$id"] = f"https://kubernetes.io/api/{kind}"
    checker = _VALIDATOR
    return checker(schema, registry=_registry(version), format_checker=checker.FORMAT_CHECKER)


@functools.cache
def _registry(version: str) -> Any:
    definitions = _read(_folder(version) / "_definitions.json")
    return Registry().with_resource(definitions["$id"], Resource.from_contents(definitions))


def _folder(version: str) -> Path:
    return _SHIPPED / f"v{version}-local-strict"


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))
