"""Training to a target accuracy with real ranks, and resuming after kill -9."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpuyard.cpu import usable_cores
from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.measure.bench import measure
from gpuyard.measure.convergence.plan import plan_convergence
from gpuyard.measure.convergence.recipe import split_samples
from gpuyard.measure.convergence.records import ConvergenceRun
from gpuyard.measure.convergence.run import run_convergence
from gpuyard.measure.record import discover_testbed
from gpuyard.measure.store import ResultsStore
from gpuyard.specs import Workload

Build = Callable[..., Workload]
WORKERS = min(2, len(usable_cores()))
DEADLINE_SECONDS = 120.0


@pytest.fixture
def forgetful(tiny: Build) -> Workload:
    return tiny("forgetful", source="tiny_models:learnable")


_RUN = """
import dataclasses
import sys
from pathlib import Path
from gpuyard.measure.convergence.plan import plan_convergence
from gpuyard.measure.convergence.run import run_convergence
from gpuyard.specs import Workload
workload = Workload.model_validate_json(sys.argv[1])
plan = plan_convergence(workload, workers=int(sys.argv[3]), epochs=400, batch_per_worker=10,
                checkpoint=Path(sys.argv[2]))
plan = dataclasses.replace(plan, target_accuracy=2.0)  # never reached
def print_epoch(progress):
    if progress.message:
        print(int(progress.done), flush=True)
run_convergence(plan, print_epoch)
"""


@pytest.mark.soak
def test_a_killed_run_ends_with_the_same_weights(forgetful: Workload, tmp_path: Path) -> None:
    def plan(name: str, epochs: int):  # type: ignore[no-untyped-def]
        planned = plan_convergence(
            forgetful,
            workers=WORKERS,
            epochs=epochs,
            batch_per_worker=10,
            checkpoint=tmp_path / name,
        )
        return dataclasses.replace(planned, target_accuracy=2.0)  # never reached

    killed = tmp_path / "killed.npz"
    with subprocess.Popen(
        [sys.executable, "-c", _RUN, forgetful.model_dump_json(), str(killed), str(WORKERS)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if int(line) >= 3:
                running.send_signal(signal.SIGKILL)
                break
    time.sleep(1)  # its ranks exit when they notice that it is gone
    saved = json.loads(np.load(killed)["about"].tobytes())["epochs"]
    assert len(saved) >= 3
    epochs = len(saved) + 3
    resumed = run_convergence(plan("killed.npz", epochs))
    restored = [epoch.restored for epoch in resumed.epochs]
    assert restored == [True] * len(saved) + [False] * 3
    uninterrupted = run_convergence(plan("whole.npz", epochs))
    assert [epoch.parameter_checksum for epoch in resumed.epochs] == [
        epoch.parameter_checksum for epoch in uninterrupted.epochs
    ]
    assert resumed.last.loss == uninterrupted.last.loss
    with np.load(killed) as first, np.load(tmp_path / "whole.npz") as second:
        for name in set(first.files) - {"about"}:
            assert first[name].tobytes() == second[name].tobytes(), name

    if WORKERS == 2:
        with pytest.raises(UserMistake, match=r"killed\.npz .*2 workers.*--fresh"):
            run_convergence(
                plan_convergence(forgetful, workers=1, checkpoint=killed, batch_per_worker=10)
            )


def test_training_stops_at_the_target_and_evaluates_held_out_samples(
    tiny: Build, tmp_path: Path, store: ResultsStore
) -> None:
    workload = tiny("classifier", source="tiny_models:learnable")
    plan = plan_convergence(
        workload, epochs=300, target_accuracy=0.9, checkpoint=tmp_path / "c.npz"
    )
    result = measure(plan, run_convergence, store, lambda _progress: None)
    assert store.records(ConvergenceRun, workload.name) == [result]
    assert result.reached
    assert result.last.training_accuracy >= 0.9
    assert all(epoch.training_accuracy < 0.9 for epoch in result.epochs[:-1])
    assert result.last.held_out_accuracy * 20 == pytest.approx(
        round(result.last.held_out_accuracy * 20)
    )  # 20 samples are held out
    resumed = measure(plan, run_convergence, store, lambda _progress: None)
    assert resumed.epochs[-1].parameter_checksum == result.last.parameter_checksum
    assert store.records(ConvergenceRun) == [result]  # nothing was trained, so nothing is stored
    assert not list(tmp_path.glob(".gpuyard*"))


def test_held_out_samples_are_not_trained_on() -> None:
    training, held_out = split_samples(25)
    assert held_out.tolist() == [0, 10, 20]
    assert sorted([*training.tolist(), *held_out.tolist()]) == list(range(25))


def test_a_workload_without_data_is_an_error(tiny: Build) -> None:
    with pytest.raises(UserMistake, match=r"synthetic.*dataset"):
        plan_convergence(tiny())
    with pytest.raises(MissingRequirement, match="gpuyard data fetch spoken-digits"):
        plan_convergence(tiny(source="spoken-digits"))


@pytest.mark.soak
def test_training_uses_the_requested_precision(tiny: Build, tmp_path: Path) -> None:
    def train(name: str, precision: str | None) -> ConvergenceRun:
        workload = tiny("classifier", source="tiny_models:learnable")
        workload = workload.model_copy(update={"precision": precision})
        plan = plan_convergence(
            workload, epochs=1, batch_per_worker=10, checkpoint=tmp_path / f"{name}.npz"
        )
        return run_convergence(plan)

    default, single, half = train("a", None), train("b", "fp32"), train("c", "bf16")
    assert (default.precision, single.precision, half.precision) == ("fp32", "fp32", "bf16")
    assert default.last.parameter_checksum == single.last.parameter_checksum
    assert half.last.parameter_checksum != single.last.parameter_checksum
    assert half.last.loss == pytest.approx(single.last.loss, rel=0.05)


@pytest.mark.parametrize(
    ("precision", "fragment"), [("fp16", "fp16.*--precision bf16"), ("tf32", "tf32.*NVIDIA GPU")]
)
def test_an_unsupported_precision_is_an_error(
    forgetful: Workload, precision: str, fragment: str
) -> None:
    if precision == "tf32" and discover_testbed().gpus:
        pytest.skip("this machine has GPUs")
    with pytest.raises(UserMistake, match=fragment):
        plan_convergence(forgetful.model_copy(update={"precision": precision}))
