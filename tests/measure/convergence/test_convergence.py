"""Training to an accuracy with real ranks, and going on after kill -9."""

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
from gpuyard.measure import ResultsStore
from gpuyard.measure.bench import measure
from gpuyard.measure.convergence.plan import plan_convergence
from gpuyard.measure.convergence.recipe import split
from gpuyard.measure.convergence.records import ConvergenceRun
from gpuyard.measure.convergence.run import run_convergence
from gpuyard.measure.record import this_testbed
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
plan = dataclasses.replace(plan, target_accuracy=2.0)  # never
def say(progress):
    if progress.line:
        print(int(progress.done), flush=True)
run_convergence(plan, say)
"""


@pytest.mark.soak
def test_killed_run_ends_with_the_same_weights(forgetful: Workload, tmp_path: Path) -> None:
    def plan(name: str, epochs: int):  # type: ignore[no-untyped-def]
        made = plan_convergence(
            forgetful,
            workers=WORKERS,
            epochs=epochs,
            batch_per_worker=10,
            checkpoint=tmp_path / name,
        )
        return dataclasses.replace(made, target_accuracy=2.0)  # never

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
    time.sleep(1)  # its ranks leave when they see that it has gone
    already = json.loads(np.load(killed)["about"].tobytes())["epochs"]
    assert len(already) >= 3
    enough = len(already) + 3
    went_on = run_convergence(plan("killed.npz", enough))
    restored = [epoch.restored for epoch in went_on.epochs]
    assert restored == [True] * len(already) + [False] * 3
    whole = run_convergence(plan("whole.npz", enough))
    assert [epoch.parameter_checksum for epoch in went_on.epochs] == [
        epoch.parameter_checksum for epoch in whole.epochs
    ]
    assert went_on.last.loss == whole.last.loss
    with np.load(killed) as one, np.load(tmp_path / "whole.npz") as other:
        for name in set(one.files) - {"about"}:
            assert one[name].tobytes() == other[name].tobytes(), name

    if WORKERS == 2:
        with pytest.raises(UserMistake, match=r"is of a run with 2 workers, not 1"):
            run_convergence(
                plan_convergence(forgetful, workers=1, checkpoint=killed, batch_per_worker=10)
            )


def test_it_learns_stops_when_it_knows_enough_and_says_what_was_held_out(
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
    )  # of 20 held out
    again = measure(plan, run_convergence, store, lambda _progress: None)
    assert again.epochs[-1].parameter_checksum == result.last.parameter_checksum
    assert store.records(ConvergenceRun) == [result]  # nothing was trained, so nothing is new
    assert not list(tmp_path.glob(".gpuyard*"))


def test_held_out_samples_are_not_trained_on() -> None:
    training, held_out = split(25)
    assert held_out.tolist() == [0, 10, 20]
    assert sorted([*training.tolist(), *held_out.tolist()]) == list(range(25))


def test_what_can_not_be_trained_is_a_sentence(tiny: Build) -> None:
    with pytest.raises(UserMistake, match="nothing can be learned"):
        plan_convergence(tiny())
    with pytest.raises(MissingRequirement, match="gpuyard data fetch spoken-digits"):
        plan_convergence(tiny(source="spoken-digits"))


@pytest.mark.soak
def test_the_precision_that_is_asked_for_is_trained_in(tiny: Build, tmp_path: Path) -> None:
    def trained(name: str, precision: str | None) -> ConvergenceRun:
        workload = tiny("classifier", source="tiny_models:learnable")
        workload = workload.model_copy(update={"precision": precision})
        plan = plan_convergence(
            workload, epochs=1, batch_per_worker=10, checkpoint=tmp_path / f"{name}.npz"
        )
        return run_convergence(plan)

    plain, single, half = trained("a", None), trained("b", "fp32"), trained("c", "bf16")
    assert (plain.precision, single.precision, half.precision) == ("fp32", "fp32", "bf16")
    assert plain.last.parameter_checksum == single.last.parameter_checksum
    assert half.last.parameter_checksum != single.last.parameter_checksum
    assert half.last.loss == pytest.approx(single.last.loss, rel=0.05)


@pytest.mark.parametrize(
    ("precision", "why"), [("fp16", "fp32, tf32 or bf16"), ("tf32", "a mode of NVIDIA GPUs")]
)
def test_a_precision_that_can_not_be_is_refused(
    forgetful: Workload, precision: str, why: str
) -> None:
    if precision == "tf32" and this_testbed().gpus:
        pytest.skip("there are GPUs here")
    with pytest.raises(UserMistake, match=why):
        plan_convergence(forgetful.model_copy(update={"precision": precision}))
