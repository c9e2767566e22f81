"""The committed JSON Schemas are what the models say, and they accept the examples."""

import json
from pathlib import Path

import jsonschema
import pytest
from ruamel.yaml import YAML

from gpuyard.errors import UnknownName
from gpuyard.specs.schema import SPECS, json_schema

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", SPECS)
def test_committed_schema_is_current(name: str) -> None:
    committed = (ROOT / "schemas" / f"{name}.schema.json").read_text(encoding="utf-8")
    assert committed == json_schema(name), "run: make schemas"


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda p: p.name)
def test_schema_accepts_the_examples(path: Path) -> None:
    schema = json.loads(json_schema(path.name.split(".")[-2]))
    jsonschema.validate(YAML(typ="safe").load(path.read_text(encoding="utf-8")), schema)


def test_schema_refuses_an_unknown_key() -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(
            {"name": "x", "model": "resnet50", "bach": 3}, json.loads(json_schema("workload"))
        )


def test_unknown_schema_names_the_closest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'cluster'"):
        json_schema("clusters")
