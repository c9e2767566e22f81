"""A deployment on the Virtual Wall through real Terraform, with a stand-in for jFed's command line; and its requests."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from gpuyard.deploy.clouds.jfed import Jfed, Slice
from gpuyard.deploy.clouds.rspec import ManifestNode, build_request, read_manifest, select_nodes
from gpuyard.deploy.deployment import LoadedDeployment, down, load_deployment, plan
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.specs.targets.testbeds import VirtualWallTarget
from tests.conftest import Cli
from tests.deploy.provisioning import SECRET, install_standin, quiet, run_provision

URN = "urn:publicid:IDN+ilabt.imec.be+user+alice"
GENI = "{http://www.geni.net/resources/rspec/3}"
FILE = f"""
name: walled
cluster: {{name: walled, nodes: 3, machine: {{gpu: v100-sxm2-16gb, gpus: 1}}, network: {{rate: 100 Mbit/s}}}}
target:
  {{kind: virtual-wall, project: scaling, user_urn: '{URN}', hardware_type: gpunode, latency: 2 ms, loss: 0.01,
   bastion: alice@bastion.example.org, ttl: 90 min}}
"""


@pytest.fixture
def wall(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the stand-in's directory, with the client as `java` on the path."""
    del home
    folder, certificate = install_standin(
        tmp_path, monkeypatch, client="java", module="tests.deploy.targets.jfed_standin"
    )
    jar = tmp_path / "experimenter-cli.jar"
    jar.touch()
    monkeypatch.setenv("GPUYARD_JFED_WAIT_SCALE", "0.01")
    monkeypatch.setenv("GPUYARD_JFED_CLI", str(jar))
    monkeypatch.setenv("GPUYARD_JFED_PEM", str(certificate))
    return folder


@pytest.fixture
def loaded(wall: Path, tmp_path: Path) -> LoadedDeployment:
    del wall
    path = tmp_path / "walled.deployment.yaml"
    path.write_text(FILE)
    return load_deployment(path)


def slices(wall: Path) -> list[dict[str, Any]]:
    """Return the slices that have machines."""
    entries = [json.loads(path.read_text()) for path in wall.glob("*.slice")]
    return [entry for entry in entries if entry["machines"]]


def build_slice(loaded: LoadedDeployment) -> Slice:
    loaded.state.path.mkdir(parents=True, exist_ok=True)
    variables = loaded.target.variables(loaded.deployment, loaded.cluster, loaded.state)
    return Slice(variables["name"], variables["project"], variables["request"])


def test_the_resource_makes_reads_misses_and_removes_a_slice(
    wall: Path, loaded: LoadedDeployment
) -> None:
    """Without Terraform, which takes its time; below it is there."""
    from tf.utils import Diagnostics

    from gpuyard.deploy.terraform.virtual_wall_slice import VirtualWallSlice

    context = SimpleNamespace(diagnostics=Diagnostics())
    resource, slice_ = VirtualWallSlice(None), build_slice(loaded)
    planned = {
        "name": slice_.name, "project": slice_.project, "lifetime_hours": 1, "request": slice_.request,
    }  # fmt: skip
    state = resource.create(context, planned)
    assert state is not None
    assert state["names"] == ["node0", "node1", "node2"]
    assert state["private_addresses"][2] == "192.168.0.3"
    assert resource.read(context, state) == state
    assert resource.create(context, planned) == state  # taken, not asked for twice
    assert len(slices(wall)) == 1
    resource.delete(context, state)
    assert slices(wall) == []
    assert resource.read(context, state) is None
    assert not context.diagnostics.has_errors()
    (wall / "refuse").write_text("Not enough nodes")
    resource.create(context, planned)
    assert context.diagnostics.has_errors()


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_slice_is_planned_made_unchanged_missed_and_removed(
    wall: Path, loaded: LoadedDeployment, home: Path
) -> None:
    assert plan(loaded).changes == Changes(1, 0, 0)
    assert not list(wall.glob("*.slice"))
    assert run_provision(loaded) == Changes(1, 0, 0)
    (entry,) = slices(wall)
    assert entry["hours"] == 2
    head, _, last = loaded.state.hosts()
    assert (head.name, head.address, head.user) == (
        "node0", "n060-17b.wall2.ilabt.iminds.be", "alice",
    )  # fmt: skip
    assert [host.private_address for host in (head, last)] == ["192.168.0.1", "192.168.0.3"]
    assert "alice@bastion.example.org" in head.proxy_command
    assert plan(loaded).changes == Changes()
    (existing,) = loaded.target.list_existing(loaded.state)
    assert "ready" in existing

    Jfed.from_environment().delete(
        build_slice(loaded)
    )  # by hand: the slice's name stays, without machines
    assert slices(wall) == []
    assert plan(loaded).changes == Changes(1, 0, 0)
    assert run_provision(loaded) == Changes(1, 0, 0)
    assert len(slices(wall)) == 1

    written = "".join(p.read_text(errors="replace") for p in home.rglob("*") if p.is_file())
    assert "gpuyard_virtual_wall_slice" in written
    assert SECRET not in written
    assert down(loaded, quiet) == []
    assert slices(wall) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_rejected_failed_and_lost_requests_are_reported(
    wall: Path, loaded: LoadedDeployment
) -> None:
    (wall / "refuse").write_text("Not enough nodes")
    with pytest.raises(GpuyardError, match="Not enough nodes"):
        run_provision(loaded)
    assert slices(wall) == []
    (wall / "refuse").unlink()
    (wall / "killed").touch()
    with pytest.raises(GpuyardError, match=r"These exist .*gpuyard-"):
        run_provision(loaded)
    assert len(slices(wall)) == 1
    (wall / "killed").unlink()
    run_provision(loaded)
    assert len(slices(wall)) == 1
    assert down(loaded, quiet) == []
    assert slices(wall) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_requested_slice_without_a_record_is_adopted_or_removed(
    wall: Path, loaded: LoadedDeployment
) -> None:
    Jfed.from_environment().create(build_slice(loaded), 1)
    assert run_provision(loaded) == Changes(1, 0, 0)
    assert len(slices(wall)) == 1
    (loaded.state.terraform / "terraform.tfstate").unlink()  # now Terraform knows of nothing
    assert down(loaded, quiet) == []
    assert slices(wall) == []


def test_a_missing_client_or_certificate_is_reported_with_a_fix(
    wall: Path, loaded: LoadedDeployment, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del wall, loaded
    file = str(tmp_path / "walled.deployment.yaml")
    monkeypatch.setenv("GPUYARD_JFED_CLI", "/nowhere.jar")
    assert "not a file" in " ".join(cli("deploy", "up", file, status=1).stderr.split())
    monkeypatch.delenv("GPUYARD_JFED_PEM")
    monkeypatch.setenv("GPUYARD_JFED_CLI", str(tmp_path / "experimenter-cli.jar"))
    context = " ".join(cli("deploy", "up", file, status=1).stderr.split())
    assert "set GPUYARD_JFED_PEM" in context
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(MissingRequirement, match="java"):
        Jfed.from_environment()


def test_jfed_output_without_a_status_is_reported(
    wall: Path, loaded: LoadedDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    del wall
    monkeypatch.setattr(Jfed, "_run", lambda *_, **__: "java.net.ConnectException\x1b[2J")
    with pytest.raises(GpuyardError, match="reported no status") as error:
        Jfed.from_environment().status(build_slice(loaded))
    assert "\x1b" not in str(error.value)


def test_a_cluster_that_a_slice_has_no_addresses_for_is_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.deployment.yaml"
    path.write_text(FILE.replace("nodes: 3", "nodes: 255"))
    assert "254 addresses" in " ".join(cli("deploy", "plan", str(path), status=2).stderr.split())


@pytest.mark.parametrize(
    ("name", "project"), [("-x", "p"), ("x" * 20, "p"), ("x", "-p"), ("x", ""), ("a b", "p")]
)
def test_names_that_could_be_options_or_are_too_long_are_refused(name: str, project: str) -> None:
    with pytest.raises(UserMistake):
        Slice(name, project, "")


TARGET = VirtualWallTarget(kind="virtual-wall", project="p", user_urn=URN)


@pytest.mark.parametrize(("nodes", "rate"), [(1, None), (1, 1e8), (2, None), (2, 1.25e8), (5, 1e7)])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"hardware_type": "gpunode", "latency": 0.0105, "loss": 0.05},
        {"disk_image": "urn:publicid:IDN+wall2.ilabt.iminds.be+image+emulab-ops:UBUNTU22-64-STD"},
    ],
)
def test_requests_are_of_the_schema_as_we_know_it(
    nodes: int, rate: float | None, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every element, attribute, reference and count; the published schema could not be had."""
    monkeypatch.setenv("GPUYARD_STANDIN", "/nowhere")
    from tests.deploy.targets.jfed_standin import check

    root = check(
        build_request(TARGET.model_copy(update=more), nodes, rate, "ssh-ed25519 AAAA gpuyard")
    )
    assert len(root.findall(f"{GENI}node")) == nodes
    shaped = rate is not None or "latency" in more
    properties = list(root.iter(f"{GENI}property"))
    assert len(properties) == (nodes * (nodes - 1) if shaped else 0)
    if rate is not None and properties:
        assert {int(entry.attrib["capacity"]) for entry in properties} == {int(rate * 8 / 1000)}
    if "latency" in more and properties:
        assert properties[0].attrib["latency"] == "10.5"
        assert properties[0].attrib["packet_loss"] == "0.05"


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('exclusive="true"', 'exclusive="yes"'),
        ('name="raw-pc"', 'name="vm"'),
        ("interface_ref client_id", "interface_ref name"),
        ("source_id", "source"),
        ('<link_type name="lan" />', ""),
        ('address="192.168.0.2"', 'address="192.168.0.1"'),
        ("node1:if0", "node7:if0"),
    ],
)
def test_a_request_that_is_none_is_seen(
    good: str, bad: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_STANDIN", "/nowhere")
    from tests.deploy.targets.jfed_standin import check

    text = build_request(TARGET, 2, 1e8, "k")
    assert good in text
    with pytest.raises(SystemExit):
        check(text.replace(good, bad, 1))


def test_a_public_key_can_t_add_to_the_request() -> None:
    key = 'ssh-ed25519 AAAA <node client_id="x"/>&'
    root = ElementTree.fromstring(build_request(TARGET, 1, None, key))  # noqa: S314
    assert len(root.findall(f"{GENI}node")) == 1
    (entries,) = root.iter("{http://jfed.iminds.be/rspec/ext/jfed-ssh-keys/1}sshkey")
    assert entries.text == key


MANIFEST = (Path(__file__).parent / "virtual_wall_manifest.xml").read_text()


def test_a_manifest_is_read_in_the_requested_order() -> None:
    nodes = read_manifest(MANIFEST)
    assert nodes[0] == ManifestNode(
        "node0", "n061-17b.wall2.ilabt.iminds.be", "alice", 22, "192.168.0.1"
    )
    assert [node.name for node in select_nodes(nodes, ["node1", "node0"])] == ["node1", "node0"]
    with pytest.raises(GpuyardError, match="no node2"):
        select_nodes(nodes, ["node2"])


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        ('hostname="n061', 'hostname="-oProxyCommand=n061'),
        ('username="alice"', 'username="alice&#10;ProxyCommand x"'),
        ('port="22"', 'port="99999"'),
        ('port="22"', 'port="²"'),
        ('type="manifest"', 'type="request"'),
        ('authentication="ssh-keys"', 'authentication="password"'),
        ('client_id="node1"', 'client_id="node0"'),
        ("<rspec", "<!DOCTYPE a [<!ENTITY b 'c'>]><rspec"),
        ("</rspec>", ""),
    ],
)
def test_an_implausible_manifest_is_reported(good: str, bad: str) -> None:
    assert good in MANIFEST
    with pytest.raises(UserMistake):
        read_manifest(MANIFEST.replace(good, bad, 1))


def test_the_client_is_started_with_an_argument_list(
    wall: Path, loaded: LoadedDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No certificate, key or request is on a command line, and no shell reads it."""
    del wall
    calls: list[tuple[str, ...]] = []
    real = subprocess.run

    def record_call(argv: tuple[str, ...], **more: Any) -> Any:
        calls.append(argv)
        return real(argv, **more)

    monkeypatch.setattr(subprocess, "run", record_call)
    Jfed.from_environment().create(build_slice(loaded), 1)
    assert {argv[3] for argv in calls if "-jar" in argv} == {"status", "create"}
    words = " ".join(word for argv in calls for word in argv)
    assert SECRET not in words
    assert "<rspec" not in words
