"""Whether the API server would take a manifest: its schema in full, with no field that it does not know."""

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
_FOUND = re.findall(
    r"v(1\.\d+\.0)-local-strict", " ".join(each.name for each in _SHIPPED.iterdir())
)
VERSIONS = sorted(each for each in _FOUND if each >= "1.29.0")
"""Those that the docs name."""
_OURS = Path(__file__).parent / "schemas"
_OF_KUBEFLOW = ("TrainJob", "PyTorchJob")


def _differ(_: Any, keys: list[str], items: Any, __: Any) -> Iterator[jsonschema.ValidationError]:
    """Of a list that the API server keeps as a map: what JSON Schema has no word for."""
    if not isinstance(items, list):
        return
    seen = [[item.get(key) for key in keys] for item in items if isinstance(item, dict)]
    for at, values in enumerate(seen):
        if values in seen[:at]:
            yield jsonschema.ValidationError(f"two items have the same {', '.join(keys)}: {values}")


_VALIDATOR = jsonschema.validators.extend(  # type: ignore[no-untyped-call]
    jsonschema.Draft202012Validator, {"x-kubernetes-list-map-keys": _differ}
)


def problems(manifest: dict[str, Any], version: str = VERSIONS[-1]) -> list[str]:
    """In words; none: it is valid."""
    checker = _checker(manifest["kind"], manifest["apiVersion"], version)
    return [f"{fault.json_path}: {fault.message[:300]}" for fault in checker.iter_errors(manifest)]


@functools.cache
def _checker(kind: str, api_version: str, version: str) -> Any:
    if kind in _OF_KUBEFLOW:
        schema = _read(_OURS / f"{kind.lower()}.schema.json")
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
