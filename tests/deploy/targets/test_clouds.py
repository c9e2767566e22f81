"""Deployments on AWS, Google Cloud, and OpenStack: real Terraform checks and applies their modules, with providers that
have the official schemas and a directory in place of a cloud."""

import base64
import http.server
import json
import os
import platform
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.deployment import LoadedDeployment, down, load_deployment, plan
from gpuyard.deploy.expiry import find_poweroff_time, set_expiry
from gpuyard.deploy.targets import TARGETS
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import GpuyardError
from tests.command_line import ROOT
from tests.conftest import Cli
from tests.deploy.provisioning import end_reapers, quiet, run_provision

SECRET = "wJalrXUtnFEMI/K7MDENG/gpuyard-test-key"  # noqa: S105
CLOUDS = ("aws", "gcp", "openstack")
_HEAD = """
name: rented
cluster: {name: rented, nodes: 2, machine: {gpu: %s, gpus: %d}, network: {rate: 10 Gbit/s}}
target:
  ssh_from: 93.184.216.0/24
"""
FILES = {
    "aws": _HEAD % ("a100-sxm4-40gb", 8)
    + "  {kind: aws, instance_type: p4d.24xlarge, region: us-east-1, max_usd_per_hour: $50/h}",
    "gcp": _HEAD % ("t4", 2)
    + "  {kind: gcp, project: team-training, zone: us-central1-a, machine_type: n1-standard-16, accelerator: nvidia-tesla-t4}",
    "openstack": _HEAD % ("t4", 1)
    + "  {kind: openstack, flavor: gpu.large, image: Ubuntu 24.04, external_network: public, usd_per_hour: $1/h}",
}
THINGS = {"aws": 25, "gcp": 9, "openstack": 15}
INSTANCES = {
    "aws": "aws_instance",
    "gcp": "google_compute_instance",
    "openstack": "openstack_compute_instance_v2",
}
_DEADLINE_SECONDS = 120
# every one starts Terraform many times, so two of three are for the soak
ONE_FAST = ("aws", *(pytest.param(kind, marks=pytest.mark.soak) for kind in CLOUDS[1:]))


def render_file(kind: str) -> str:
    """One mapping for `target`."""
    head, _, last = FILES[kind].rpartition("\n")
    return head.replace("target:\n  ssh_from", "target: {ssh_from") + ", " + last.strip()[1:] + "\n"


@pytest.fixture
def cloud(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
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
    (there / "aws_ec2_instance_type_offerings.json").write_text(
        json.dumps({"locations": ["us-east-1d", "us-east-1b", "us-east-1d"]})
    )
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("GPUYARD_ADDRESS_URL", "http://127.0.0.1:9")  # nothing listens there
    yield there
    end_reapers(home)


@pytest.fixture
def load(cloud: Path, tmp_path: Path) -> Callable[..., LoadedDeployment]:
    def loaded(kind: str, *changes: tuple[str, str]) -> LoadedDeployment:
        text = render_file(kind)
        for change in changes:
            assert change[0] in text
            text = text.replace(*change)
        path = tmp_path / "rented.deployment.yaml"
        path.write_text(text)
        return load_deployment(path)

    return loaded


def list_resources(cloud: Path, kind: str = "") -> list[Path]:
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
    load: Callable[..., LoadedDeployment],
    kind: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded = load(kind)
    assert plan(loaded).changes == Changes(THINGS[kind], 0, 0)
    assert list_resources(cloud) == []
    assert not list((home / "deployments").iterdir())

    assert run_provision(loaded) == Changes(THINGS[kind], 0, 0)
    head, worker = loaded.state.hosts()
    assert head.address.startswith("198.51.100.")
    assert head.cluster_address.startswith("10.83.0.")
    assert worker.address.startswith("10.83.0.")
    assert (head.user, head.through_head, worker.through_head) == ("ubuntu", False, True)
    options = subprocess.run(
        ("ssh", "-F", str(loaded.state.ssh_config), "-G", "node1"),
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "proxyjump node0" in options
    no_mirror(cloud, monkeypatch)  # providers are fetched once
    assert plan(loaded).changes == Changes()

    list_resources(cloud, INSTANCES[kind])[1].unlink()
    assert plan(loaded).changes.added >= 1
    run_provision(loaded)
    assert len(list_resources(cloud, INSTANCES[kind])) == 2

    existing = loaded.target.list_existing(loaded.state)
    assert len(existing) == THINGS[kind] - (kind == "aws")  # one is only in Terraform's state
    assert any(
        item.startswith(f"{INSTANCES[kind]}.node[0] ({INSTANCES[kind]}-") for item in existing
    )

    assert (cloud / "secret-seen").read_text() == SECRET  # the provider gets it
    written = "".join(p.read_text(errors="replace") for p in home.rglob("*") if p.is_file())
    assert INSTANCES[kind] in written
    assert SECRET not in written
    assert down(loaded, quiet) == []
    assert list_resources(cloud) == []
    assert not (home / "deployments" / "rented").exists()


def no_mirror(cloud: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = cloud.parent / "empty.rc"
    empty.write_text(
        f'provider_installation {{\n  filesystem_mirror {{\n    path = "{cloud}"\n  }}\n}}\n'
    )
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", str(empty))


def read_resources(cloud: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in list_resources(cloud, kind)]


@pytest.mark.timeout(300)
def test_on_aws_only_the_head_has_a_door_and_every_card_its_fabric(
    cloud: Path, load: Callable[..., LoadedDeployment]
) -> None:
    loaded = load("aws")
    run_provision(loaded)
    rules = [
        item
        for item in read_resources(cloud, "aws_vpc_security_group_ingress_rule")
        if item["cidr_ipv4"]
    ]
    assert [(item["cidr_ipv4"], item["from_port"], item["to_port"]) for item in rules] == [
        ("93.184.216.0/24", 22, 22)
    ]
    templates = {item["name"][-1]: item for item in read_resources(cloud, "aws_launch_template")}
    subnets = {
        item["tags"]["Name"][-4:]: item["id"] for item in read_resources(cloud, "aws_subnet")
    }
    for node, counts in (("0", [2, 1, 1, 1, 1]), ("1", [1, 1, 1, 1, 1])):
        cards = templates[node]["network_interfaces"]
        assert [len(card["security_groups"]) for card in cards] == counts
        # as in AWS's guide: the second device of the first card, and the first of every other
        assert [card["interface_type"] for card in cards] == [None, *["efa-only"] * 4]
        assert [card["network_card_index"] for card in cards] == [0, 0, 1, 2, 3]
        assert [card["device_index"] for card in cards] == [0, 1, 0, 0, 0]
        outside, *fabric = [card["subnet_id"] for card in cards]
        assert outside == subnets["head" if node == "0" else "vate"]
        assert fabric == [subnets["vate"]] * 4
        assert templates[node]["placement"][0]["group_name"].startswith("gpuyard-rented-")
        assert templates[node]["instance_initiated_shutdown_behavior"] == "terminate"
        script = base64.b64decode(templates[node]["user_data"]).decode()
        assert script.startswith("#!/bin/sh\n")
        assert f"--on-active={8 * 3600 + 600} shutdown -P now" in script
    # the head's, and the gateway's through which the others download
    assert len(read_resources(cloud, "aws_eip")) == 2
    assert (
        rules[0]["security_group_id"] in templates["0"]["network_interfaces"][0]["security_groups"]
    )


def read_template(cloud: Path) -> dict[str, Any]:
    return read_resources(cloud, "aws_launch_template")[0]


@pytest.mark.timeout(300)
def test_on_aws_the_zone_offers_the_type_and_stays(
    cloud: Path, load: Callable[..., LoadedDeployment]
) -> None:
    offers = cloud / "aws_ec2_instance_type_offerings.json"
    bad = load("aws", ("region:", "zone: us-east-1a, region:"))
    with pytest.raises(
        GpuyardError, match=r"us-east-1a does not offer p4d\.24xlarge.*us-east-1b or us-east-1d"
    ):
        plan(bad)
    reservation = "capacity_reservation: cr-0123456789abcdef0, zone: us-east-1b, region:"
    loaded = load("aws", ("region:", "market: spot, zone: us-east-1b, region:"))
    run_provision(loaded)
    assert {item["availability_zone"] for item in read_resources(cloud, "aws_subnet")} == {
        "us-east-1b"
    }
    (market,) = read_template(cloud)["instance_market_options"]
    assert market["market_type"] == "spot"
    assert market["spot_options"][0]["spot_instance_type"] == "one-time"
    assert down(loaded, quiet) == []
    loaded = load("aws", ("region:", f"market: capacity-block, {reservation}"))
    run_provision(loaded)
    template = read_template(cloud)
    assert template["instance_market_options"][0]["market_type"] == "capacity-block"
    (target,) = template["capacity_reservation_specification"][0]["capacity_reservation_target"]
    assert target["capacity_reservation_id"] == "cr-0123456789abcdef0"
    assert down(loaded, quiet) == []
    loaded = load("aws")
    run_provision(loaded)
    offers.write_text(json.dumps({"locations": ["us-east-1a", "us-east-1b"]}))
    assert plan(loaded).changes == Changes()
    offers.write_text(json.dumps({"locations": []}))
    with pytest.raises(GpuyardError, match=r"us-east-1 does not offer p4d\.24xlarge"):
        plan(loaded)
    assert down(loaded, quiet) == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ONE_FAST)
def test_missing_capacity_is_reported_with_the_existing_resources(
    cloud: Path, load: Callable[..., LoadedDeployment], kind: str
) -> None:
    loaded = load(kind)
    (cloud / "refuse").write_text(INSTANCES[kind])
    with pytest.raises(GpuyardError) as raised:
        run_provision(loaded)
    assert "InsufficientInstanceCapacity" in str(raised.value)
    assert "cost money until `gpuyard deploy down`" in str(raised.value)
    assert "cluster (" in str(raised.value)
    (cloud / "refuse").write_text(f"delete {INSTANCES[kind]}")
    run_provision(loaded)
    with pytest.raises(GpuyardError, match=rf"DependencyViolation.*{INSTANCES[kind]}\.node"):
        down(loaded, quiet)
    (cloud / "refuse").unlink()
    assert down(loaded, quiet) == []
    assert list_resources(cloud) == []


@pytest.mark.timeout(300)
def test_interrupted_up_and_down_list_existing_resources(
    cloud: Path, load: Callable[..., LoadedDeployment], tmp_path: Path
) -> None:
    loaded = load("openstack")
    for verb, sign in (("up", "creating"), ("down", "deleting")):
        if verb == "down":
            (cloud / "slow").unlink()
            run_provision(loaded)  # continues after the interruption
        (cloud / "slow").write_text("3")
        process = subprocess.Popen(
            (sys.executable, "-P", "-m", "gpuyard", "deploy", verb, str(tmp_path / "rented.deployment.yaml"),
             *(("--yes", "--force") if verb == "down" else ())),
            start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        eventually((cloud / sign).exists)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output = " ".join(process.communicate(timeout=200)[1].split())
        assert process.returncode == 1
        assert (
            f"terraform {verb.replace('up', 'apply').replace('down', 'destroy')} was interrupted"
            in output
        )
        assert "`gpuyard deploy down`: openstack_" in output
        there = {json.loads(path.read_text())["id"] for path in list_resources(cloud)}
        assert there  # and all of it is listed
        assert all(identity in output for identity in there)
    (cloud / "slow").unlink()
    assert down(loaded, quiet) == []
    assert list_resources(cloud) == []


@pytest.mark.timeout(300)
def test_resources_are_remembered_after_a_kill_or_an_emptied_state(
    load: Callable[..., LoadedDeployment],
) -> None:
    loaded = load("openstack")
    with loaded.state.hold():  # as Terraform leaves it that is killed in its first moments
        state = loaded.terraform.state
        state.directory.mkdir()
        state.update_marker(begun=True)
        state.path.touch()
    name = rf"gpuyard-rented-{loaded.state.ensure_token()}"
    with pytest.raises(GpuyardError, match=rf"`up` was killed .* console .* {name}"):
        run_provision(loaded)
    (remaining,) = down(loaded, quiet)
    assert name in remaining
    state.path.write_text('{"version": 4, "resources": []}')
    state.update_marker()
    state.path.write_text("")
    for verb in (run_provision, plan, lambda loaded: down(loaded, quiet)):
        with pytest.raises(GpuyardError, match="it is empty"):
            verb(loaded)
    state.path.unlink()
    state.marker.unlink()  # as they say, when one has looked
    assert down(loaded, quiet) == []


@pytest.mark.soak  # the process that does it is tried with Lambda Cloud, too
@pytest.mark.timeout(300)
def test_a_deployment_is_removed_automatically_when_it_expires(
    cloud: Path, load: Callable[..., LoadedDeployment], home: Path
) -> None:
    loaded = load("openstack", ("kind: openstack", "kind: openstack, ttl: 2 s"))
    run_provision(loaded)
    eventually(lambda: not list_resources(cloud) and not (home / "deployments" / "rented").exists())


def test_prices_come_from_the_catalog_and_unknown_ones_are_reported(
    load: Callable[..., LoadedDeployment], cli: Cli, tmp_path: Path
) -> None:
    loaded = load("aws")
    assert TARGETS["aws"].usd_per_hour(loaded.deployment, loaded.cluster) == pytest.approx(
        2 * 21.95764
    )
    file = str(tmp_path / "rented.deployment.yaml")
    load("aws", ("us-east-1", "eu-west-1"))  # other regions have other prices
    output = " ".join(cli("deploy", "plan", file, status=1).stderr.split())
    assert "price of rented is unknown" in output
    assert "max_usd_per_hour is $50.00" in output
    load("aws", ("$50/h", "$40/h"))
    assert "would cost $43.92 per hour" in " ".join(
        cli("deploy", "plan", file, status=1).stderr.split()
    )
    load("gcp")
    assert json.loads(cli("deploy", "plan", file, "--json").stdout)["usd_per_hour"] is None
    assert "is unknown" in cli("deploy", "plan", file).stdout


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        ("aws", ("93.184.216.0/24", "everywhere"), "ssh_from"),
        ("aws", ("93.184.216.0/24", "93.184.216.7/24"), "ssh_from"),
        ("aws", ("93.184.216.0/24", "198.51.100.7/32"), "documentation"),
        ("gcp", ("93.184.216.0/24", "'2001:db8::/48'"), "documentation"),
        ("openstack", ("93.184.216.0/24", "198.19.0.0/16"), "ssh_from"),
        ("openstack", ("93.184.216.0/24", "224.0.0.0/4"), "ssh_from"),
        ("aws", ("93.184.216.0/24", "'2a00:1450::/32'"), "IPv4"),
        ("gcp", ("93.184.216.0/24", "192.168.1.0/24"), "private network"),
        ("aws", ("region:", "market: capacity-block, region:"), "capacity_reservation"),
        ("aws", ("region:", "capacity_reservation: cr-0123456789abcdef0, region:"), "zone"),
        ("aws", ("p4d.24xlarge", "g5g.metal"), "ARM"),
        ("aws", ("gpus: 8", "gpus: 4"), "machines have 4 GPUs, and p4d.24xlarge has 8"),
        ("aws", ("us-east-1,", "us-east-1, zone: eu-west-1a,"), "is not in the region"),
        ("gcp", ("us-central1-a", "us-central1"), "zone"),
        ("openstack", ("gpu.large", "'-x'"), "flavor"),
    ],
)
def test_mistakes_are_reported(
    cli: Cli, tmp_path: Path, kind: str, change: tuple[str, str], expected: str
) -> None:
    path = tmp_path / "x.deployment.yaml"
    assert change[0] in render_file(kind)
    path.write_text(render_file(kind).replace(*change))
    assert expected in " ".join(cli("deploy", "plan", str(path), status=2).stderr.split())


@pytest.mark.timeout(300)
def test_google_gets_large_packets_a_driver_and_a_time_limit(
    cloud: Path, load: Callable[..., LoadedDeployment]
) -> None:
    loaded = load("gcp", ("kind: gcp", "kind: gcp, spot: true"))
    run_provision(loaded)
    (network,) = read_resources(cloud, "google_compute_network")
    assert network["mtu"] == 8896
    (nat,) = read_resources(cloud, "google_compute_router_nat")
    assert nat["source_subnetwork_ip_ranges_to_nat"] == "ALL_SUBNETWORKS_ALL_IP_RANGES"
    (policy,) = read_resources(cloud, "google_compute_resource_policy")
    assert policy["group_placement_policy"][0]["collocation"] == "COLLOCATED"
    for machine in read_resources(cloud, "google_compute_instance"):
        assert "with-nvidia" in machine["boot_disk"][0]["initialize_params"][0]["image"]
        assert f"--on-active={8 * 3600 + 600} " in machine["metadata"]["user-data"]
        (card,) = machine["network_interface"]
        assert card["nic_type"] == "GVNIC"
        assert bool(card["access_config"]) is machine["name"].endswith("-0")  # only the head
        (scheduling,) = machine["scheduling"]
        assert scheduling["provisioning_model"] == "SPOT"
        assert scheduling["automatic_restart"] is False
    later = load("gcp", ("kind: gcp", "kind: gcp, spot: true, ttl: 9 h"))
    assert plan(later).changes == Changes()  # the role sets another time, not Terraform
    assert down(loaded, quiet) == []


@pytest.mark.parametrize(("machine_type", "cards"), [("a3-highgpu-8g", 4), ("a3-megagpu-8g", 8)])
def test_google_machines_whose_fast_network_is_not_set_up_are_named(
    load: Callable[..., LoadedDeployment], machine_type: str, cards: int
) -> None:
    loaded = load(
        "gcp",
        ("n1-standard-16, accelerator: nvidia-tesla-t4", machine_type),
        ("gpu: t4, gpus: 2", "gpu: h100-sxm5-80gb, gpus: 8"),
    )
    (note,) = loaded.target.availability(loaded.deployment)
    assert "GPUDirect" in note and f"other {cards} cards" in note


@pytest.mark.timeout(300)
def test_an_image_that_openstack_no_longer_has_replaces_no_machine(
    cloud: Path, load: Callable[..., LoadedDeployment]
) -> None:
    """The provider then reports the image as "Image not found", and would rebuild every machine with an empty disk."""
    loaded = load("openstack")
    run_provision(loaded)
    assert read_resources(cloud, "openstack_compute_instance_v2")
    renamed = load("openstack", ("Ubuntu 24.04", "Ubuntu 24.04 of last year"))
    assert plan(renamed).changes == Changes()
    assert down(loaded, quiet) == []


@pytest.mark.timeout(300)
def test_google_machines_with_rdma_cards_get_a_network_for_them(
    cloud: Path, load: Callable[..., LoadedDeployment]
) -> None:
    loaded = load(
        "gcp",
        ("n1-standard-16, accelerator: nvidia-tesla-t4", "a3-ultragpu-8g"),
        ("gpu: t4, gpus: 2", "gpu: h200-sxm5-141gb, gpus: 8"),
    )
    assert loaded.target.availability(loaded.deployment) == ()
    run_provision(loaded)
    networks = {each["name"]: each for each in read_resources(cloud, "google_compute_network")}
    (rdma,) = (network for name, network in networks.items() if name.endswith("-rdma"))
    assert rdma["network_profile"].endswith("/networkProfiles/us-central1-a-vpc-roce")
    for machine in read_resources(cloud, "google_compute_instance"):
        kinds = [card["nic_type"] for card in machine["network_interface"]]
        assert kinds == ["GVNIC", *["MRDMA"] * 8]
        assert len({card["subnetwork"] for card in machine["network_interface"]}) == 9
    assert down(loaded, quiet) == []


@pytest.fixture
def checkip(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A service on this machine that answers with the first item of a list, or fails without one."""
    answers = ["93.184.216.34\n"]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if answers else 503)
            self.end_headers()
            self.wfile.write("".join(answers).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("GPUYARD_ADDRESS_URL", f"http://127.0.0.1:{server.server_port}")
        yield answers
        server.shutdown()


@pytest.mark.timeout(300)
def test_ssh_is_open_for_this_machine_and_down_works_without_its_address(
    cloud: Path, load: Callable[..., LoadedDeployment], checkip: list[str]
) -> None:
    loaded = load("openstack", ("ssh_from: 93.184.216.0/24", "ssh_from: here"))
    for wrong in ("10.0.0.7", "<html>"):
        checkip[0] = wrong
        with pytest.raises(GpuyardError, match="`ssh_from`"):
            plan(loaded)
    checkip[0] = "93.184.216.34\n"
    run_provision(loaded)
    rules = read_resources(cloud, "openstack_networking_secgroup_rule_v2")
    assert "93.184.216.34/32" in {rule["remote_ip_prefix"] for rule in rules}
    checkip.clear()
    assert plan(loaded).changes == Changes()  # the last address stays
    assert down(loaded, quiet) == []
    assert list_resources(cloud) == []


@pytest.mark.parametrize("kind", CLOUDS)
def test_a_plan_says_whether_anything_ends_the_machines_while_this_computer_is_off(
    load: Callable[..., LoadedDeployment], kind: str
) -> None:
    """The sentence agrees with the time at which the machines power themselves off."""

    def find_note(ttl: str) -> tuple[str, bool]:
        loaded = load(kind, (f"kind: {kind}", f"kind: {kind}{ttl}"))
        (note,) = (
            note
            for note in loaded.target.notes(loaded.deployment)
            if "power" in note or "ends" in note
        )
        with loaded.state.hold():
            set_expiry(loaded.state, loaded.deployment)
            off = (
                bool(loaded.target.power_off_effect)
                and find_poweroff_time(loaded.state) is not None
            )
        return note, off

    for ttl, promised in ((", ttl: 9 h", kind != "openstack"), ("", False), (", ttl: null", False)):
        note, off = find_note(ttl)
        assert off is promised
        assert note.startswith("Nothing ends") is not promised
        assert "`ttl`" in note or ttl or kind == "openstack"


def test_a_plan_warns_if_ssh_from_does_not_contain_this_machine(
    load: Callable[..., LoadedDeployment], checkip: list[str]
) -> None:
    def warnings(network: str) -> list[str]:
        loaded = load("openstack", ("93.184.216.0/24", network))
        return [note for note in loaded.target.notes(loaded.deployment) if "ssh_from" in note]

    (warning,) = warnings("8.8.8.0/24")
    assert "93.184.216.34" in warning and "8.8.8.0/24" in warning
    for network in ("93.184.216.0/24", "0.0.0.0/0", "10.0.0.0/8", "here"):
        assert warnings(network) == []
    checkip.clear()  # it cannot be found
    assert warnings("8.8.8.0/24") == []


def test_unavailable_providers_are_reported(
    load: Callable[..., LoadedDeployment], cloud: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_mirror(cloud, monkeypatch)
    with pytest.raises(GpuyardError, match="could not download its providers"):
        plan(load("aws"))
