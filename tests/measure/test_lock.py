"""Two measurements at once would both be wrong, so the second is refused; a dead one holds nothing."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.measure.machine_lock import hold_measurement_lock
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.records import Measurement
from gpuyard.measure.training.run import run_sweep
from tests.conftest import Cli
from tests.measure.conftest import Build

HOLDER = """
import sys
from gpuyard.measure.machine_lock import hold_measurement_lock
with hold_measurement_lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_measurement_is_refused_until_the_first_is_gone(
    tiny: Build, store: ResultsStore, tmp_path: Path
) -> None:
    sweep = plan_sweep(tiny(), [1], [4], seconds_per_point=0.1)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(GpuyardError, match="another gpuyard is measuring"):
            run_sweep(sweep, store)
        assert store.records(Measurement) == []
        holder.kill()
        holder.wait()
    assert len(run_sweep(sweep, store)) == 1
    with hold_measurement_lock():
        assert len(run_sweep(sweep, store)) == 1  # already stored: nothing to measure


def test_training_to_an_accuracy_needs_no_lock(tiny: Build, cli: Cli, tmp_path: Path) -> None:
    """It measures no speed, so it runs beside a measurement, and beside the training of other users."""
    workload = tiny("classifier", source="tiny_models:learnable")
    (tmp_path / "tiny.workload.yaml").write_text(workload.model_dump_json(exclude_unset=True))
    shutil.copy(Path(__file__).parent / "tiny_models.py", tmp_path)
    with hold_measurement_lock():
        options = ("--accuracy", "30%", "--checkpoint", "tiny.npz")
        cli("train", "tiny.workload.yaml", *options, cwd=tmp_path)
