"""Write the JSON Schemas of Kubeflow's TrainJob and PyTorchJob into tests/jobs/engines/kubernetes/schemas.

Usage: python scripts/import_kubeflow_schemas.py kubeflow_trainer_api-2.3.0-*.whl kubeflow_training-1.9.4-*.whl

Both wheels are on PyPI under Apache-2.0 and are generated from the API's own OpenAPI documents. The script reads them and
never runs them. Types that Kubernetes itself defines (a pod template, metadata) stay references to the definitions in the
package kubernetes-validate. Types do not cover lengths and patterns, so `LIMITS` adds those that the API server checks.
"""

import ast
import hashlib
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate

TARGET = Path(__file__).parents[1] / "tests" / "jobs" / "engines" / "kubernetes" / "schemas"
CORE = "https://kubernetes.io/api/_definitions.json"
NAME = {"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
KEYS = "x-kubernetes-list-map-keys"
"""The keys whose values must be unique among the items of a list."""
ENV = {"maxItems": 128, KEYS: ["name"]}
ARGUMENTS = {"maxItems": 128, "items": {"type": "string", "maxLength": 65536}}
LONG_NAME = {"minLength": 1, "maxLength": 253}
# the only metadata keys of nested objects in CRDs; the API server drops or rejects all others
METADATA = {"propertyNames": {"enum": ["annotations", "finalizers", "labels", "name", "namespace"]}}
LIMITS: dict[str, dict[str, dict[str, Any]]] = {
    # from the validation rules of kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go (0015772c)
    "TrainerV1alpha1TrainJobSpec": {
        "activeDeadlineSeconds": {"minimum": 1},
        "runtimePatches": {"maxItems": 16, KEYS: ["manager"]},
        "managedBy": {"maxLength": 253},
    },
    "TrainerV1alpha1RuntimeRef": {
        "name": LONG_NAME,
        "apiGroup": {"maxLength": 253},
        "kind": {"maxLength": 253},
    },
    "TrainerV1alpha1Trainer": {
        "image": {"maxLength": 500},
        "command": ARGUMENTS,
        "args": ARGUMENTS,
        "env": ENV,
        "numNodes": {"minimum": 1},
        "numProcPerNode": {"minimum": 1},
    },
    "TrainerV1alpha1RuntimePatch": {"manager": LONG_NAME},
    "TrainerV1alpha1JobSetTemplatePatch": {"metadata": METADATA},
    "TrainerV1alpha1JobSetSpecPatch": {"replicatedJobs": {"maxItems": 100, KEYS: ["name"]}},
    "TrainerV1alpha1ReplicatedJobPatch": {
        "name": {**LONG_NAME, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
    },
    "TrainerV1alpha1JobTemplatePatch": {"metadata": METADATA},
    "TrainerV1alpha1PodTemplatePatch": {"metadata": METADATA},
    "TrainerV1alpha1PodSpecPatch": {
        "volumes": {"maxItems": 128, KEYS: ["name"]},
        "containers": {"maxItems": 64, KEYS: ["name"]},
        "initContainers": {"maxItems": 64, KEYS: ["name"]},
        "imagePullSecrets": {"maxItems": 64, KEYS: ["name"]},
        "tolerations": {"maxItems": 128},
        "schedulingGates": {"maxItems": 16, KEYS: ["name"]},
        "serviceAccountName": {"maxLength": 253},
    },
    "TrainerV1alpha1ContainerPatch": {
        "name": LONG_NAME,
        "env": ENV,
        # unique by name; in a pod they are unique by mountPath
        "volumeMounts": {"maxItems": 128, KEYS: ["name"]},
    },
    # from kubeflow/training-operator, pkg/apis/kubeflow.org/v1 (186ac6c6, 66bd9bdc)
    "KubeflowOrgV1ReplicaSpec": {
        "restartPolicy": {"enum": ["Always", "OnFailure", "Never", "ExitCode"]},
        "replicas": {"minimum": 0},
        "template": {"properties": {"metadata": METADATA}},
    },
    "KubeflowOrgV1RunPolicy": {
        "cleanPodPolicy": {"enum": ["All", "Running", "None"]},
        "activeDeadlineSeconds": {"minimum": 1},
        "backoffLimit": {"minimum": 0},
    },
    "KubeflowOrgV1PyTorchJobSpec": {
        "pytorchReplicaSpecs": {"propertyNames": {"enum": ["Master", "Worker"]}}
    },
}
PLAIN = {
    "StrictStr": {"type": "string"},
    "StrictInt": {"type": "integer"},
    "StrictBool": {"type": "boolean"},
    "StrictFloat": {"type": "number"},
    "datetime": {"type": "string", "format": "date-time"},
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "object": {},
    "Any": {},
}


class Wheel:
    """The model classes of one package, as source code."""

    def __init__(self, path: Path, folder: str) -> None:
        self.classes: dict[str, ast.ClassDef] = {}
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.startswith(folder) and name.endswith(".py"):
                    for node in ast.parse(wheel.read(name)).body:
                        if isinstance(node, ast.ClassDef):
                            self.classes[node.name] = node
        self.sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        self.core = _map_core_names()

    def build_schema(self, root: str, api_version: str, kind: str, source: str) -> dict[str, Any]:
        """Build the schema of one kind, including everything that it refers to."""
        definitions: dict[str, Any] = {}
        self._add_definition(root, definitions)
        top = definitions.pop(root)
        top["properties"]["apiVersion"] = {"const": api_version}
        top["properties"]["kind"] = {"const": kind}
        top["properties"]["metadata"] = {
            "allOf": [
                top["properties"]["metadata"],
                {"required": ["name"], "properties": {"name": NAME}},
            ]
        }
        top["required"] = sorted({"apiVersion", "kind", "metadata", "spec", *top["required"]})
        return {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$comment": f"{source}, sha256 {self.sha256}, Apache-2.0; written by scripts/import_kubeflow_schemas.py",
            **top,
            "$defs": dict(sorted(definitions.items())),
        }

    def _add_definition(self, name: str, definitions: dict[str, Any]) -> None:
        if name in definitions:
            return
        definitions[name] = {}  # it may refer to itself
        fields = self._read_pydantic_fields(name) or self._read_openapi_fields(name)
        limits = LIMITS.get(name, {})
        unknown = limits.keys() - fields.keys()
        if not fields or unknown:
            raise SystemExit(
                f"{name} has no field {', '.join(unknown)}" if unknown else f"{name} has no fields"
            )
        properties = {
            key: {**self._convert_type(kind, definitions), **limits.get(key, {})}
            for key, (kind, _) in sorted(fields.items())
        }
        definitions[name] = {
            "type": "object",
            "properties": properties,
            "required": sorted(key for key, (_, needed) in fields.items() if needed),
            "additionalProperties": False,
        }

    def _read_pydantic_fields(self, name: str) -> dict[str, tuple[ast.expr, bool]]:
        """Parse `field: Optional[Type] = Field(default=None, alias="key")`, as in the Trainer package."""
        fields = {}
        for node in self.classes[name].body:
            if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
                continue
            call = node.value
            if node.target.id.startswith("_") or not isinstance(call, ast.Call):
                continue
            options = {keyword.arg: keyword.value for keyword in call.keywords}
            alias = options.get("alias")
            key = alias.value if isinstance(alias, ast.Constant) else node.target.id
            fields[str(key)] = (node.annotation, "default" not in options)
        return fields

    def _read_openapi_fields(self, name: str) -> dict[str, tuple[ast.expr, bool]]:
        """Parse `openapi_types = {...}` and `attribute_map = {...}`, as the older generator writes them."""
        tables = {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in self.classes[name].body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        }
        text = ast.unparse(self.classes[name])
        return {
            tables["attribute_map"][field]: (
                ast.parse(kind.replace("(", "[").replace(")", "]"), mode="eval").body,
                f"Invalid value for `{field}`, must not be `None`" in text,
            )
            for field, kind in tables["openapi_types"].items()
        }

    def _convert_type(self, kind: ast.expr, definitions: dict[str, Any]) -> dict[str, Any]:
        if isinstance(kind, ast.Subscript):
            outer = ast.unparse(kind.value)
            if outer == "Optional":
                return self._convert_type(kind.slice, definitions)
            if outer in {"List", "list"}:
                return {"type": "array", "items": self._convert_type(kind.slice, definitions)}
            if outer in {"Dict", "dict"} and isinstance(kind.slice, ast.Tuple):
                values = self._convert_type(kind.slice.elts[1], definitions)
                return {"type": "object", "additionalProperties": values}
            raise SystemExit(f"cannot convert the type {ast.unparse(kind)}; extend `_convert_type`")
        name = ast.unparse(kind)
        if name in PLAIN:
            return dict(PLAIN[name])
        if name in self.core:
            return {"$ref": f"{CORE}#/$defs/{self.core[name]}"}
        self._add_definition(name, definitions)
        return {"$ref": f"#/$defs/{name}"}


def _map_core_names() -> dict[str, str]:
    """Map the generators' names of Kubernetes types to the names in the definitions."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    file = folder / f"v{kubernetes_validate.latest_version()}-local-strict" / "_definitions.json"
    names = {}
    for name in json.loads(file.read_text(encoding="utf-8"))["$defs"]:
        class_name = "".join(
            part[:1].upper() + part[1:] for part in name.replace("-", ".").split(".")
        )
        names[class_name] = name
        names[class_name.replace("IoK8s", "K8sIo", 1)] = name
        if name.startswith(("io.k8s.api.core.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1.")):
            names["V1" + name.rpartition(".")[2]] = name
    names["Quantity"] = "io.k8s.apimachinery.pkg.api.resource.Quantity"
    return names


def main(trainer: str, training: str) -> None:
    train_job = Wheel(Path(trainer), "kubeflow_trainer_api/models/").build_schema(
        "TrainerV1alpha1TrainJob",
        "trainer.kubeflow.org/v1alpha1",
        "TrainJob",
        Path(trainer).name,
    )
    pytorch_job = Wheel(Path(training), "kubeflow/training/models/").build_schema(
        "KubeflowOrgV1PyTorchJob", "kubeflow.org/v1", "PyTorchJob", Path(training).name
    )
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, schema in (("trainjob", train_job), ("pytorchjob", pytorch_job)):
        text = json.dumps(schema, indent=1) + "\n"
        (TARGET / f"{name}.schema.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
