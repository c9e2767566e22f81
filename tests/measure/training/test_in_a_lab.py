"""Training over real shaped links; skipped with the reason if no lab can be created."""

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gpuyard import lab
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import run_sweep
from gpuyard.run.places import LabNodes
from gpuyard.specs import KnownThroughput, Workload
from tests.conftest import needs_two_cores
from tests.lab.conftest import namespaces
from tests.measure.tiny_models import Busy

Build = Callable[..., Workload]


pytestmark = pytest.mark.usefixtures("can_make_labs")


def measure(
    store: ResultsStore, workload: Workload, plan: lab.LabPlan, **more: object
) -> Measurement:
    with lab.temporary(plan) as created:
        place = LabNodes(plan, created)
        sweep = plan_sweep(workload, [2], [4], seconds_per_point=0.1, place=place, **more)  # type: ignore[arg-type]
        (measured,) = run_sweep(sweep, store)
    return measured


def test_gradients_cross_the_link_no_faster_than_its_rate(store: ResultsStore) -> None:
    gpu = KnownThroughput(gpu="t4", batch_per_gpu=4, samples_per_second=400)
    workload = Workload(name="digits", model="spoken-digits-conv", measured=[gpu])
    m = measure(store, workload, lab.plan_lab(2, "50 Mbit/s", name="test-train"), gpu="t4")
    assert (m.place.kind, m.place.nodes) == ("lab", ("node0", "node1"))
    assert m.place.link_bytes_per_second == 6.25e6
    assert m.provenance.launcher == "torchrun"
    assert m.all_reduce_bytes == 4 * 376_200
    # two nodes each send all gradients once: 1.5 MB take 0.24 s at 50 Mbit/s, except that a burst of
    # 256 kB may pass at once
    assert m.step.step_seconds > 0.15
    assert m.step.exposed_communication_seconds > 0.1


def test_results_are_reported_in_undilated_time(store: ResultsStore, tiny: Build) -> None:
    gpu = KnownThroughput(gpu="t4", batch_per_gpu=4, samples_per_second=400)
    plan = lab.plan_lab(2, "10 Gbit/s", name="test-dilated", dilation=20)
    m = measure(store, tiny(measured=[gpu]), plan, gpu="t4", launcher="direct")
    assert m.place.dilation == 20
    assert m.place.link_bytes_per_second == 1.25e9
    # a step of 10 ms took 200 ms here
    assert 0.01 <= m.step.step_seconds < 0.2
    assert m.step.compute_seconds < 0.1


def test_real_computation_is_dilated(store: ResultsStore, tiny: Build) -> None:
    plan = lab.plan_lab(2, "1 Gbit/s", name="test-stretched", dilation=8)
    m = measure(store, tiny("Busy"), plan, launcher="direct")
    # without dilation, a step would appear to take an eighth of its real time
    assert m.step.compute_seconds >= Busy.BUSY_SECONDS
    assert m.step.step_seconds >= Busy.BUSY_SECONDS
    assert len(set(m.parameter_checksums)) == 1
    plain = lab.plan_lab(2, "1 Gbit/s", name="test-stretched")
    assert m.key not in {
        p.key for p in plan_sweep(tiny("Busy"), [2], [4], place=LabNodes(plain)).points
    }


@pytest.mark.parametrize(
    ("how", "everyone"),
    [(signal.SIGTERM, False), (signal.SIGHUP, False), (signal.SIGTERM, True)],
)
def test_an_ended_sweep_leaves_no_namespace_and_no_rank(
    how: signal.Signals, everyone: bool, home: Path, tmp_path: Path
) -> None:
    """SIGHUP comes when its terminal is closed; a service manager or Slurm signals every process at once."""
    (tmp_path / "ended.sweep.yaml").write_text(
        "{name: ended, workloads: [spoken-digits-linear], nodes: [3], batch: [8], gpu: t4,"
        " link: [100 Mbit/s], time_per_point: 10 min}"
    )
    argv = (sys.executable, "-P", "-m", "gpuyard", "bench", "sweep", "ended.sweep.yaml")
    quiet = subprocess.DEVNULL
    sweep = subprocess.Popen(argv, cwd=tmp_path, stdout=quiet, stderr=quiet)
    deadline = time.monotonic() + 120
    name, ranks = f"gpuyard-sweep-{sweep.pid}-", set[int]()
    while len(ranks) < 3:
        assert sweep.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
        for node in (each for each in namespaces() if each.startswith(name)):
            ranks |= set(netns_pids(node))
    for process in psutil.Process(sweep.pid).children(recursive=True) if everyone else ():
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(how)
    sweep.send_signal(how)
    assert sweep.wait(timeout=60) == 128 + how
    assert not [each for each in namespaces() if each.startswith(name)]
    while any(psutil.pid_exists(pid) for pid in ranks):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def netns_pids(namespace: str) -> list[int]:
    listed = subprocess.run(
        ("ip", "netns", "pids", namespace), capture_output=True, text=True, check=False
    )
    return [int(pid) for pid in listed.stdout.split()]


@pytest.mark.soak  # `make soak` builds Horovod
@needs_two_cores
def test_horovod_exchanges_gradients_between_nodes(store: ResultsStore) -> None:
    pytest.importorskip("horovod", reason="gpuyard horovod install builds it, in some minutes")
    gpu = KnownThroughput(gpu="t4", batch_per_gpu=4, samples_per_second=400)
    workload = Workload(name="digits", model="spoken-digits-conv", measured=[gpu])
    plan = lab.plan_lab(2, "50 Mbit/s", name="test-horovod")
    m = measure(store, workload, plan, gpu="t4", strategy="horovod")
    assert (m.strategy, m.workers, m.place.nodes) == ("horovod", 2, ("node0", "node1"))
    assert m.all_reduce_bytes == 4 * 376_200
    assert m.step.step_seconds > 0.15  # as with DDP above
