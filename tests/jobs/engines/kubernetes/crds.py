"""CustomResourceDefinitions of Kubeflow's kinds, so that a real API server validates our manifests.

They are built from the JSON Schemas in `schemas`, with Kubernetes' own types (a pod template) in full. A server drops every
field that such a definition does not know, so a test compares what it sent with what the server kept.
"""

from typing import Any

from tests.jobs.engines.kubernetes.schema_check import _KUBEFLOW_SCHEMAS, VERSIONS, _folder, _read

_KEPT = {"type", "format", "enum", "minimum", "maximum", "minLength", "maxLength", "pattern", "maxItems", "minItems", "required"}  # fmt: skip


def build_crd(kind: str, api_version: str) -> dict[str, Any]:
    """Build the definition of a kind of Kubeflow."""
    group, _, version = api_version.partition("/")
    plural = f"{kind.lower()}s"
    document = _read(_KUBEFLOW_SCHEMAS / f"{kind.lower()}.schema.json")
    schema = _Converter(document).convert(document)
    schema["properties"] |= {name: {"type": "string"} for name in ("apiVersion", "kind")}
    schema["properties"]["metadata"] = {"type": "object"}
    names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {"status": {}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [served]},
    }


class _Converter:
    """Converts JSON Schema to the structural schemas that Kubernetes accepts."""

    def __init__(self, document: dict[str, Any]) -> None:
        core = _read(_folder(VERSIONS[-1]) / "_definitions.json")
        self._definitions = {**core["$defs"], **document["$defs"]}

    def convert(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Convert a schema; types that a structural schema cannot express may have any fields."""
        if "$ref" in schema:
            return self.convert(self._definitions[schema["$ref"].rpartition("/")[2]])
        if "oneOf" in schema or schema.get("format") == "int-or-string":
            return {"x-kubernetes-int-or-string": True}
        kind = schema.get("type")
        if isinstance(kind, list):  # with null
            return self.convert({**schema, "type": next(each for each in kind if each != "null")})
        if kind is None:
            return {"x-kubernetes-preserve-unknown-fields": True}
        result = {key: value for key, value in schema.items() if key in _KEPT}
        if kind == "array":
            result["items"] = self.convert(schema["items"])
        elif kind == "object":
            result |= self._convert_object(schema)
        return result

    def _convert_object(self, schema: dict[str, Any]) -> dict[str, Any]:
        if properties := schema.get("properties"):
            return {"properties": {name: self.convert(each) for name, each in properties.items()}}
        if isinstance(values := schema.get("additionalProperties"), dict):
            return {"additionalProperties": self.convert(values)}
        return {"x-kubernetes-preserve-unknown-fields": True}
