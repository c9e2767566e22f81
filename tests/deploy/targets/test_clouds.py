"""Deployments on AWS, Google Cloud and OpenStack: their modules checked and applied by real Terraform, with providers
that have the official ones' schema and a directory for a cloud."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.deployment import Opened, down, open_deployment, plan
from gpuyard.deploy.targets import TARGETS
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import GpuyardError
from tests.command_line import ROOT
from tests.conftest import Cli
from tests.deploy.provisioning import provisioned, quiet

SECRET = "wJalrXUtnFEMI/K7MDENG/gpuyard-test-key"  # noqa: S105
CLOUDS = ("aws", "gcp", "openstack")
_HEAD = """
name: rented
cluster: {name: rented, nodes: 2, machine: {gpu: %s, gpus: %d}, network: {rate: 10 Gbit/s}}
target:
  ssh_from: 198.51.100.0/24
"""
FILES = {
    "aws": _HEAD % ("a100-sxm4-40gb", 8)
    + "  {kind: aws, instance_type: p4d.24xlarge, region: us-east-1, efa_interfaces: 4, max_usd_per_hour: $50/h}",
    "gcp": _HEAD % ("t4", 2)
    + "  {kind: gcp, project: team-training, zone: us-central1-a, machine_type: n1-standard-16, accelerator: nvidia-tesla-t4}",
    "openstack": _HEAD % ("t4", 1)
    + "  {kind: openstack, flavor: gpu.large, image: Ubuntu 24.04, external_network: public, usd_per_hour: $1/h}",
}
THINGS = {"aws": 19, "gcp": 7, "openstack": 15}
INSTANCES = {
    "aws": "aws_instance",
    "gcp": "google_compute_instance",
    "openstack": "openstack_compute_instance_v2",
}
_DEADLINE_SECONDS = 120
# every one starts Terraform many times, so two of three are for the soak
ONE_FAST = ("aws", *(pytest.param(kind, marks=pytest.mark.soak) for kind in CLOUDS[1:]))


def text_of(kind: str) -> str:
    """One mapping for `target`."""
    head, _, last = FILES[kind].rpartition("\n")
    return head.replace("target:\n  ssh_from", "target: {ssh_from") + ", " + last.strip()[1:] + "\n"


@pytest.fixture
def cloud(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    del home
    pytest.importorskip("tf")
    there = tmp_path / "cloud"
    there.mkdir()
    mirror = tmp_path / "mirror"
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    for kind in CLOUDS:
        described = json.loads(
            (ROOT / f"tests/deploy/targets/provider_schemas/{kind}.json").read_text()
        )
        version = described["version"]
        folder = (
            mirror / "registry.terraform.io" / described["provider"] / version / f"linux_{machine}"
        )
        folder.mkdir(parents=True)
        name = described["provider"].rpartition("/")[2]
        program = folder / f"terraform-provider-{name}_v{version}"
        program.write_text(
            f"#!/bin/sh\ncd '{ROOT}'\nexec '{sys.executable}' -m tests.deploy.targets.cloud_standin {kind}\n"
        )
        program.chmod(0o755)
    configuration = tmp_path / "mirror.rc"
    configuration.write_text(
        f'provider_installation {{\n  filesystem_mirror {{\n    path = "{mirror}"\n  }}\n}}\n'
    )
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(configuration))
    monkeypatch.setenv("GPUYARD_STANDIN", str(there))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    return there


@pytest.fixture
def opening(cloud: Path, tmp_path: Path) -> Callable[..., Opened]:
    def opened(kind: str, *changes: tuple[str, str]) -> Opened:
        text = text_of(kind)
        for change in changes:
            assert change[0] in text
            text = text.replace(*change)
        path = tmp_path / "rented.deployment.yaml"
        path.write_text(text)
        return open_deployment(path)

    return opened


def things(cloud: Path, kind: str = "") -> list[Path]:
    return sorted(cloud.glob(f"{kind}*.thing"))


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ONE_FAST)
def test_machines_are_planned_made_unchanged_missed_and_removed(
    cloud: Path,
    opening: Callable[..., Opened],
    kind: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = opening(kind)
    assert plan(opened).changes == Changes(THINGS[kind], 0, 0)
    assert things(cloud) == []
    assert not list((home / "deployments").iterdir())

    assert provisioned(opened) == Changes(THINGS[kind], 0, 0)
    head, worker = opened.state.hosts()
    assert head.address.startswith("198.51.100.")
    assert head.inside.startswith("10.83.0.")
    assert worker.address.startswith("10.83.0.")
    assert (head.user, head.through_head, worker.through_head) == ("ubuntu", False, True)
    told = subprocess.run(
        ("ssh", "-F", str(opened.state.ssh_config), "-G", "node1"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "proxyjump node0" in told
    no_mirror(cloud, monkeypatch)  # providers are fetched once
    assert plan(opened).changes == Changes()

    things(cloud, INSTANCES[kind])[1].unlink()
    assert plan(opened).changes.added >= 1
    provisioned(opened)
    assert len(things(cloud, INSTANCES[kind])) == 2

    stands = opened.target.standing(opened.state)
    assert len(stands) == THINGS[kind]
    assert any(one.startswith(f"{INSTANCES[kind]}.node[0] ({INSTANCES[kind]}-") for one in stands)

    assert (cloud / "secret-seen").read_text() == SECRET  # the provider gets it
    written = "".join(p.read_text(errors="replace") for p in home.rglob("*") if p.is_file())
    assert INSTANCES[kind] in written
    assert SECRET not in written
    assert down(opened, quiet) == []
    assert things(cloud) == []
    assert not (home / "deployments" / "rented").exists()


def no_mirror(cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = cloud.parent / "empty.rc"
    empty.write_text(
        f'provider_installation {{\n  filesystem_mirror {{\n    path = "{cloud}"\n  }}\n}}\n'
    )
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(empty))


def made(cloud: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in things(cloud, kind)]


@pytest.mark.timeout(300)
def test_on_aws_only_the_head_has_a_door_and_every_card_its_fabric(
    cloud: Path, opening: Callable[..., Opened]
) -> None:
    opened = opening("aws")
    provisioned(opened)
    doors = [one for one in made(cloud, "aws_vpc_security_group_ingress_rule") if one["cidr_ipv4"]]
    assert [(one["cidr_ipv4"], one["from_port"], one["to_port"]) for one in doors] == [
        ("198.51.100.0/24", 22, 22)
    ]
    templates = {one["name"][-1]: one for one in made(cloud, "aws_launch_template")}
    for node, wanted in (("0", [2, 1, 1, 1]), ("1", [1, 1, 1, 1])):
        cards = templates[node]["network_interfaces"]
        assert [len(card["security_groups"]) for card in cards] == wanted
        assert [card["interface_type"] for card in cards] == ["efa", *["efa-only"] * 3]
        assert [card["network_card_index"] for card in cards] == [0, 1, 2, 3]
        assert templates[node]["placement"][0]["group_name"].startswith("gpuyard-rented-")
    assert (
        doors[0]["security_group_id"] in templates["0"]["network_interfaces"][0]["security_groups"]
    )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ONE_FAST)
def test_what_there_is_no_capacity_for_is_said_with_what_is_there(
    cloud: Path, opening: Callable[..., Opened], kind: str
) -> None:
    opened = opening(kind)
    (cloud / "refuse").write_text(INSTANCES[kind])
    with pytest.raises(GpuyardError) as raised:
        provisioned(opened)
    assert "InsufficientInstanceCapacity" in str(raised.value)
    assert "costs money until `gpuyard deploy down`" in str(raised.value)
    assert "cluster (" in str(raised.value)
    (cloud / "refuse").write_text(f"delete {INSTANCES[kind]}")
    provisioned(opened)
    with pytest.raises(GpuyardError, match=rf"DependencyViolation.*{INSTANCES[kind]}\.node"):
        down(opened, quiet)
    (cloud / "refuse").unlink()
    assert down(opened, quiet) == []
    assert things(cloud) == []


@pytest.mark.timeout(300)
def test_interrupted_up_and_down_list_what_stands(
    cloud: Path, opening: Callable[..., Opened], tmp_path: Path
) -> None:
    opened = opening("openstack")
    for verb, sign in (("up", "creating"), ("down", "deleting")):
        if verb == "down":
            (cloud / "slow").unlink()
            provisioned(opened)  # goes on where it was cut off
        (cloud / "slow").write_text("3")
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "gpuyard", "deploy", verb, str(tmp_path / "rented.deployment.yaml")),
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        eventually((cloud / sign).exists)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        said = " ".join(process.communicate(timeout=200)[1].split())
        assert process.returncode == 1
        assert (
            f"Terraform's {verb.replace('up', 'apply').replace('down', 'destroy')} was interrupted"
            in said
        )
        assert "costs money until `gpuyard deploy down`: openstack_" in said
        there = {json.loads(path.read_text())["id"] for path in things(cloud)}
        assert there  # and all of it is listed
        assert all(identity in said for identity in there)
    (cloud / "slow").unlink()
    assert down(opened, quiet) == []
    assert things(cloud) == []


@pytest.mark.timeout(300)
def test_what_a_kill_or_an_emptied_state_may_hide_is_not_forgotten(
    opening: Callable[..., Opened],
) -> None:
    opened = opening("openstack")
    with opened.state.changing():  # as Terraform leaves it that is killed in its first moments
        state = opened.terraform.state
        state.directory.mkdir()
        state.note(begun=True)
        state.path.touch()
    name = rf"gpuyard-rented-{opened.state.token()}"
    with pytest.raises(GpuyardError, match=rf"`up` was killed .* console for what is named {name}"):
        provisioned(opened)
    (left,) = down(opened, quiet)
    assert name in left
    state.path.write_text('{"version": 4, "resources": []}')
    state.note()
    state.path.write_text("")
    for verb in (provisioned, plan, lambda opened: down(opened, quiet)):
        with pytest.raises(GpuyardError, match="it is empty"):
            verb(opened)
    state.path.unlink()
    state.mark.unlink()  # as they say, when one has looked
    assert down(opened, quiet) == []


@pytest.mark.soak  # the process that does it is tried with Lambda Cloud, too
@pytest.mark.timeout(300)
def test_it_is_removed_by_itself_when_its_time_is_over(
    cloud: Path, opening: Callable[..., Opened], home: Path
) -> None:
    opened = opening("openstack", ("kind: openstack", "kind: openstack, ttl: 2 s"))
    provisioned(opened)
    eventually(lambda: not things(cloud) and not (home / "deployments" / "rented").exists())


def test_prices_are_the_catalogs_and_what_nobody_knows_is_said(
    opening: Callable[..., Opened], cli: Cli, tmp_path: Path
) -> None:
    opened = opening("aws")
    assert TARGETS["aws"].usd_per_hour(opened.deployment, opened.cluster) == pytest.approx(
        2 * 21.95764
    )
    file = str(tmp_path / "rented.deployment.yaml")
    opening("aws", ("us-east-1", "eu-west-1"))  # other regions have other prices
    said = " ".join(cli("deploy", "plan", file, status=1).stderr.split())
    assert "the hourly price of rented is not known, and max_usd_per_hour is $50.00" in said
    opening("aws", ("$50/h", "$40/h"))
    assert "would cost $43.92 an hour" in " ".join(
        cli("deploy", "plan", file, status=1).stderr.split()
    )
    opening("gcp")
    assert json.loads(cli("deploy", "plan", file, "--json").stdout)["usd_per_hour"] is None
    assert "is unknown" in cli("deploy", "plan", file).stdout


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("aws", ("198.51.100.0/24", "everywhere"), "expected IPv4 addresses like"),
        ("aws", ("198.51.100.0/24", "198.51.100.7/24"), "expected IPv4 addresses like"),
        ("aws", ("gpus: 8", "gpus: 4"), "machines have 4 GPUs, and p4d.24xlarge has 8"),
        ("aws", ("us-east-1,", "us-east-1, zone: eu-west-1a,"), "is not in the region"),
        ("gcp", ("us-central1-a", "us-central1"), "zone"),
        ("openstack", ("gpu.large", "'-x'"), "flavor"),
    ],
)
def test_mistakes_are_said(
    cli: Cli, tmp_path: Path, kind: str, change: tuple[str, str], said: str
) -> None:
    path = tmp_path / "x.deployment.yaml"
    assert change[0] in text_of(kind)
    path.write_text(text_of(kind).replace(*change))
    assert said in " ".join(cli("deploy", "plan", str(path), status=2).stderr.split())


def test_providers_that_can_not_be_had_are_said(
    opening: Callable[..., Opened], cloud: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_mirror(cloud, monkeypatch)
    with pytest.raises(GpuyardError, match="could not fetch its providers"):
        plan(opening("aws"))
