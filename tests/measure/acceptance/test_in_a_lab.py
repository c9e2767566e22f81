"""Faults of real processes over shaped links are found, and healthy nodes are not accused."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard import files
from gpuyard.hardware.clusters import read_cluster
from gpuyard.lab import plan_lab
from gpuyard.measure.acceptance.plan import plan_acceptance
from gpuyard.measure.acceptance.records import PHASES, Acceptance
from gpuyard.measure.acceptance.run import run_acceptance
from gpuyard.measure.store import ResultsStore
from gpuyard.run.places import LabNodes, Place
from tests.conftest import Cli
from tests.measure.acceptance.faults import ThrottledNodes, cpu_quota, install_nvidia_smi

pytestmark = pytest.mark.usefixtures("can_make_labs")
GPUS = 2
QUOTA = 0.3
RUNS = int(os.environ.get("SOAK_ACCEPTANCES", "2"))


def run(place: Place, phases: tuple[str, ...] = PHASES, spec: str = "") -> Acceptance:
    cluster = read_cluster(spec or f"{len(place.nodes)}x{GPUS}xt4@100M")
    plan = plan_acceptance(cluster, place, phases=phases)
    return run_acceptance(plan, ResultsStore(files.results_file()))


def run_with_faults(nodes: int, tmp_path: Path, phases: tuple[str, ...]) -> Acceptance:
    """Run with half a link at node 1, a slow CPU at node 2, and a missing GPU at node 3."""
    install_nvidia_smi(tmp_path / "bin", GPUS, {"10.77.0.4": GPUS - 1})
    plan = plan_lab(nodes, "100 Mbit/s", name="test-accept", link_of={1: "50 Mbit/s"})
    with cpu_quota(QUOTA) as group, LabNodes(plan).up() as lab:
        return run(ThrottledNodes(lab.plan, lab.lab, 1, "node2", group), phases)


def accusations(record: Acceptance) -> set[tuple[str | None, str]]:
    """Return the node and the phase of each fault."""
    return {(check.node, check.phase) for check in record.all_findings if check.grade == "fail"}


FAULTS = {("node1", "pairs"), ("node2", "alone"), ("node3", "inventory")}


@pytest.fixture
def smi_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")


@pytest.mark.usefixtures("smi_path")
def test_three_faults_of_four_nodes_are_found_and_the_fourth_is_healthy(tmp_path: Path) -> None:
    record = run_with_faults(4, tmp_path, ("inventory", "alone", "pairs"))
    assert accusations(record) == FAULTS
    assert [node.grade for node in record.nodes] == ["pass", "fail", "fail", "fail"]
    assert not record.accepted
    (throttled,) = (c for c in record.nodes[2].findings if c.subject == "matrix products")
    assert "quota" in throttled.text
    assert ResultsStore(files.results_file()).get(record.id) == record
    assert not list((files.home() / "acceptance").iterdir())


def test_a_stopped_run_continues_and_a_short_one_says_what_it_left_out(cli: Cli) -> None:
    arguments = ("accept", "2x1xt4@100M", "--lab", "2x100Mbit", "--checks", "alone,pairs")
    process = subprocess.Popen(
        (sys.executable, "-m", "gpuyard", *arguments), stdout=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 120
    while (
        not (states := list((files.home() / "acceptance").glob("*.json")))
        or not json.loads(states[0].read_text())["inventories"]
    ):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    done = cli(*arguments, "--time", "1 s", "--json", status=0)
    record = json.loads(done.stdout)
    assert record["accepted"]
    assert any("continues" in note for note in record["notes"])
    assert [what.partition(":")[0] for what in record["left_out"]] == ["alone", "pairs"]


@pytest.mark.soak
@pytest.mark.usefixtures("smi_path")
@pytest.mark.parametrize("number", range(RUNS))
def test_three_faults_of_eight_nodes_are_found(number: int, tmp_path: Path) -> None:
    record = run_with_faults(8, tmp_path, PHASES)
    assert accusations(record) == FAULTS
    assert record.whole is not None
    assert record.training is not None


@pytest.mark.soak
@pytest.mark.parametrize("number", range(RUNS))
def test_a_healthy_cluster_of_eight_nodes_is_accepted(number: int) -> None:
    with LabNodes(plan_lab(8, "100 Mbit/s", name="test-accept")).up() as lab:
        record = run(lab)
    assert accusations(record) == set()
    assert record.accepted
    assert record.left_out == ()


@pytest.mark.soak
def test_halves_find_a_slow_link_if_pairs_were_left_out() -> None:
    plan = plan_lab(8, "100 Mbit/s", name="test-accept", link_of={5: "40 Mbit/s"})
    with LabNodes(plan).up() as lab:
        record = run(lab, ("inventory", "all"))
    assert accusations(record) == {("node5", "all")}


@pytest.mark.soak
def test_a_slow_uplink_between_racks_accuses_no_node() -> None:
    plan = plan_lab(8, "100 Mbit/s", name="test-accept", racks=2, uplink="40 Mbit/s")
    with LabNodes(plan).up() as lab:
        record = run(lab, ("inventory", "pairs"))
    assert accusations(record) == {(None, "pairs")}
    assert record.faulty() == []


@pytest.mark.soak
def test_from_python() -> None:
    result = gy.accept("2x1xt4@100M", lab="2x100Mbit", phases="pairs", time="5 min")
    assert result.accepted
    assert [node.name for node in result] == ["node0", "node1"]
