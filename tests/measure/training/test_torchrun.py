"""Training through torchrun on this machine."""

import contextlib
from collections.abc import Callable

import psutil
import pytest

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.measure import ResultsStore, plan_sweep, run_sweep
from gpuyard.specs import Workload
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


@needs_two_cores
def test_torchrun_trains_here_and_nobody_can_connect(store: ResultsStore, tiny: Build) -> None:
    listening: set[str] = set()

    def look(_event: object) -> None:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has ended meanwhile
                for connection in child.net_connections("inet"):
                    if connection.status == psutil.CONN_LISTEN:
                        listening.add(connection.laddr.ip)

    sweep = plan_sweep(tiny(), [2], [8], seconds_per_point=0.3, launcher="torchrun")
    (m,) = run_sweep(sweep, store, on_event=look)
    assert m.provenance.launcher == "torchrun"
    assert m.provenance.backend == "gloo"
    assert len(set(m.parameter_checksums)) == 1
    assert listening <= {"127.0.0.1", "::1"}
    assert plan_sweep(tiny(), [2], [8], seconds_per_point=0.3).points == sweep.points


def test_only_ddp_is_started_by_torchrun(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard.measure.training import sweep

    with pytest.raises(UnknownName, match="did you mean 'torchrun'"):
        plan_sweep(tiny(), [1], [4], launcher="torchrn")
    monkeypatch.setattr(sweep, "check_strategy", lambda *_a, **_k: None)
    with pytest.raises(UserMistake, match="horovod is started directly"):
        plan_sweep(tiny(), [1], [4], strategy="horovod", launcher="torchrun")
