"""Sweeps with real rank processes on a tiny model."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gpuyard.cpu import usable_cores
from gpuyard.errors import GpuyardError, MissingRequirement, UnknownName, UserMistake
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training import run
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement, Rejection
from gpuyard.measure.training.run import find_stored_run, run_sweep
from gpuyard.measure.training.sweep import SweepEvent
from gpuyard.specs import Workload
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]
DEADLINE_SECONDS = 60.0


@needs_two_cores
def test_sweep_stores_sensible_measurements(store: ResultsStore, tiny: Build) -> None:
    sweep = plan_sweep(tiny("chatty"), [2, 1], [16, 4], seconds_per_point=0.4)
    events: list[SweepEvent] = []
    measurements = run_sweep(sweep, store, on_event=events.append)

    assert [(m.workers, m.batch_per_worker) for m in measurements] == [
        (1, 4),
        (1, 16),
        (2, 4),
        (2, 16),
    ]
    assert store.records(Measurement) == measurements
    for m in measurements:
        assert 0 <= m.low <= m.samples_per_second <= m.high
        assert len(m.windows) >= 3
        parts = m.step
        assert parts.step_seconds == pytest.approx(
            parts.compute_seconds + parts.exposed_communication_seconds + parts.input_seconds
        )
        assert 0 < parts.input_seconds < parts.step_seconds
        assert m.samples_per_second * parts.step_seconds == pytest.approx(
            m.workers * m.batch_per_worker
        )
        assert m.provenance.data_source == "synthetic"
        assert m.provenance.threads_per_worker == len(usable_cores()) // 2
        assert len(m.provenance.cores_by_worker) == m.workers
        assert m.spec == sweep.workload.model_dump(mode="json")
    for m in measurements[:2]:
        assert (m.all_reduce_bytes, m.all_reduce_seconds) == (None, None)
        assert m.local_windows == ()
    for m in measurements[2:]:
        assert m.all_reduce_bytes == 4 * (16 * 4 + 4)
        assert m.all_reduce_seconds is not None
        assert m.all_reduce_seconds > 0
        assert 1 <= len(m.local_windows) <= len(m.windows)
        assert m.provenance.backend == "gloo"
        assert set(m.provenance.cores_by_worker[0]).isdisjoint(m.provenance.cores_by_worker[1])
        # the ranks saw different samples, and half of the windows exchanged nothing
        assert len(m.parameter_checksums) == 2
        assert len(set(m.parameter_checksums)) == 1

    assert [e.state for e in events if e.state in {"started", "finished"}] == [
        "started",
        "finished",
    ] * 4
    assert all(0 <= e.progress.done <= 4 for e in events)
    assert all((e.progress.remaining_seconds or 0) >= 0 for e in events)
    assert (events[-1].progress.done, events[-1].progress.remaining_seconds) == (4, 0)

    # a second run finds everything, starts nothing, and changes nothing
    second_events: list[SweepEvent] = []
    assert run_sweep(sweep, store, on_event=second_events.append) == measurements
    assert {e.state for e in second_events} == {"stored"}
    assert store.records(Measurement) == measurements


@needs_two_cores
@pytest.mark.soak
def test_ddp_trains_and_keeps_the_ranks_equal(store: ResultsStore, tiny: Build) -> None:
    sweep = plan_sweep(tiny(), [2], [32], seconds_per_point=1.5)
    (m,) = run_sweep(sweep, store)
    assert m.loss_first is not None
    assert m.loss_last is not None
    assert m.loss_last < m.loss_first
    # the ranks saw different samples, and half of the windows exchanged nothing
    assert len(m.parameter_checksums) == 2
    assert len(set(m.parameter_checksums)) == 1


@pytest.mark.soak
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precisions_train(store: ResultsStore, tiny: Build, precision: str) -> None:
    sweep = plan_sweep(tiny(precision=precision), [1], [8], seconds_per_point=0.2)
    (m,) = run_sweep(sweep, store)
    assert m.loss_last is not None
    assert m.samples_per_second > 0


def test_fresh_measures_again(
    store: ResultsStore, tiny: Build, make_measurement: Callable[..., Measurement]
) -> None:
    sweep = plan_sweep(tiny("bare"), [1], [4], seconds_per_point=0.1)
    earlier = make_measurement(key=sweep.points[0].key, loss_last=1.0)
    store.add(earlier)
    assert run_sweep(sweep, store) == [earlier]
    (later,) = run_sweep(sweep, store, fresh=True)
    assert store.records(Measurement) == [earlier, later]
    assert store.latest(Measurement, sweep.points[0].key) == later


def test_a_doubtful_run_is_marked_and_repeated_if_it_must_be_valid(
    store: ResultsStore, tiny: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = plan_sweep(tiny("bare"), [1], [4], seconds_per_point=0.1)
    monkeypatch.setattr(run, "ValidityCheck", lambda _workload: lambda _m, _foreign: "a bad day")
    (m,) = run_sweep(sweep, store)
    assert m.doubt == "a bad day"
    assert store.records(Measurement) == [m]
    assert store.records(Rejection) == []
    assert find_stored_run(store, sweep.points[0], lambda _m, _foreign: None) == m
    assert run_sweep(sweep, store) == [m]
    assert run_sweep(sweep, store, reject_doubtful=True) == []
    assert [r.reason for r in store.records(Rejection)] == ["a bad day"]


@needs_two_cores
def test_crashing_rank_shows_its_last_lines(store: ResultsStore, tiny: Build) -> None:
    sweep = plan_sweep(tiny("CrashInRankOne"), [2], [4], seconds_per_point=0.2)
    with pytest.raises(GpuyardError, match=r"rank 1 of 2 .*status 1") as caught:
        run_sweep(sweep, store)
    assert "ValueError: the second rank has had enough" in str(caught.value)
    assert store.records(Measurement) == []


def test_a_hanging_rank_times_out(store: ResultsStore, tiny: Build) -> None:
    sweep = plan_sweep(tiny("Hanging"), [1], [4], seconds_per_point=0.2)

    def only_once_started(event: SweepEvent) -> None:
        assert event.state == "started"

    with pytest.raises(GpuyardError, match="5 s"):
        run_sweep(sweep, store, on_event=only_once_started, silence_seconds=5)


def test_a_user_mistake_in_a_rank_is_reported_as_one(store: ResultsStore, tiny: Build) -> None:
    sweep = plan_sweep(tiny("frozen"), [1], [4], seconds_per_point=0.2)
    with pytest.raises(UserMistake, match="tiny_models:frozen"):
        run_sweep(sweep, store)


_SWEEP = """
import sys
from pathlib import Path
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import run_sweep
from gpuyard.specs import Workload
workload = Workload.model_validate_json(sys.argv[2])
sweep = plan_sweep(workload, [2], [2, 3], seconds_per_point=0.2, launcher=sys.argv[3])
run_sweep(sweep, ResultsStore(Path(sys.argv[1])))
"""


def _wait_until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.05)


def _is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@needs_two_cores
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize(
    ("how", "launcher", "processes"),
    [
        pytest.param(signal.SIGKILL, "direct", 2, marks=pytest.mark.soak),
        (signal.SIGINT, "direct", 2),
        (signal.SIGKILL, "torchrun", 3),  # the third is torchrun's agent
    ],
)
def test_a_stopped_sweep_keeps_finished_points_and_leaves_nothing_else_behind(
    store: ResultsStore,
    tiny: Build,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: signal.Signals,
    launcher: str,
    processes: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    workload = tiny("WaitsAtBatch3")
    with subprocess.Popen(
        [sys.executable, "-c", _SWEEP, str(store.path), workload.model_dump_json(), launcher],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            "TMPDIR": str(temporary),
        },
        stderr=subprocess.DEVNULL,
    ) as sweeping:
        _wait_until(lambda: store.records(Measurement), "the first point is stored")
        ranks = [child.pid for child in psutil.Process(sweeping.pid).children(recursive=True)]
        assert len(ranks) == processes
        assert all(_is_running(rank) for rank in ranks)
        sweeping.send_signal(how)
    assert sweeping.returncode != 0
    _wait_until(lambda: not any(_is_running(rank) for rank in ranks), "no rank remains")
    _wait_until(lambda: not list(temporary.glob("gpuyard-*")), "no file remains")
    (finished,) = store.records(Measurement)
    assert finished.batch_per_worker == 2


def test_more_workers_than_cores_is_an_error(tiny: Build) -> None:
    cores = len(usable_cores())
    with pytest.raises(UserMistake, match=f"{cores + 1} workers.*{cores + 1} cores"):
        plan_sweep(tiny(), [1, cores + 1], [4])


@pytest.mark.parametrize(
    ("strategy", "kind", "fragment"),
    [
        ("dataparallel", MissingRequirement, "2 CUDA GPUs.*ddp"),
        ("parameter-server", GpuyardError, "gpuyard predict"),
        ("dpp", UnknownName, "'ddp'"),
    ],
)
def test_a_strategy_that_cannot_run_here_is_an_error(
    tiny: Build, strategy: str, kind: type[GpuyardError], fragment: str
) -> None:
    with pytest.raises(kind, match=fragment):
        plan_sweep(tiny(), [1], [4], strategy=strategy)


def test_a_missing_horovod_is_an_error(tiny: Build) -> None:
    pytest.importorskip("torch")
    try:
        import horovod  # noqa: F401
    except ImportError:
        with pytest.raises(MissingRequirement, match="gpuyard horovod install"):
            plan_sweep(tiny(), [1], [4], strategy="horovod")
    else:
        assert plan_sweep(tiny(), [1], [4], strategy="horovod").strategy == "horovod"


def test_tf32_needs_a_gpu(tiny: Build) -> None:
    with pytest.raises(UserMistake, match=r"tf32.*NVIDIA GPU"):
        plan_sweep(tiny(precision="tf32"), [1], [4], device="cpu")


def test_impossible_sweeps_are_errors(tiny: Build) -> None:
    with pytest.raises(UserMistake, match="at least one worker count"):
        plan_sweep(tiny(), [], [4])
    with pytest.raises(UserMistake, match="above 0 s, got 0"):
        plan_sweep(tiny(), [1], [4], seconds_per_point=0)


def test_key_changes_with_what_changes_the_result(
    tiny: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = tmp_path / "my_model.py"
    model.write_text("def small(): ...\n")
    workload = tiny().model_copy(update={"model": "my_model:small"})

    def key(**changes: object) -> str:
        options = {"workers": [1], "batches": [4], "seconds_per_point": 1.0, **changes}
        return plan_sweep(workload, **options).points[0].key  # type: ignore[arg-type]

    plain = key()
    assert key() == plain
    assert key(batches=[5]) != plain
    assert key(seconds_per_point=2.0) != plain
    assert key(seed=1) != plain
    model.write_text("def small(): return 1\n")
    assert key() != plain


def test_dry_run_value_names_every_point(tiny: Build) -> None:
    plan = plan_sweep(tiny(), [1], [8, 4]).describe()
    assert [(p["workers"], p["batch_per_worker"]) for p in plan["points"]] == [(1, 4), (1, 8)]
    assert plan["strategy"] == "ddp"


def test_the_framework_of_a_workload_is_not_recorded_for_our_own_runs(tiny: Build) -> None:
    workload = tiny(framework="apex", gradient_dtype="fp16")
    sweep = plan_sweep(workload, [2], [8])
    assert (sweep.workload.framework, sweep.workload.gradient_dtype) == (None, None)
    assert sweep.points == plan_sweep(tiny(), [2], [8]).points
