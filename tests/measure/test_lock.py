"""Two measurements at once would both be wrong, so the second is refused; a dead one holds nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.measure import Measurement, ResultsStore, plan_sweep, run_sweep
from gpuyard.measure.machine_lock import hold_measurement_lock
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
