"""Training through torchrun on this machine."""

import contextlib
from collections.abc import Callable

import psutil
import pytest

from gpuyard.errors import UnknownName, UserMistake
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.plan import plan_sweep
from gpuyard.measure.training.run import run_sweep
from gpuyard.specs import Workload
from tests.conftest import needs_two_cores

Build = Callable[..., Workload]


@needs_two_cores
def test_torchrun_listens_only_on_loopback(store: ResultsStore, tiny: Build) -> None:
    listening: set[str] = set()

    def collect_listeners(_event: object) -> None:
        for child in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):  # it has exited in the meantime
                for connection in child.net_connections("inet"):
                    if connection.status == psutil.CONN_LISTEN:
                        listening.add(connection.laddr.ip)

    sweep = plan_sweep(tiny(), [2], [8], seconds_per_point=0.3, launcher="torchrun")
    (m,) = run_sweep(sweep, store, on_event=collect_listeners)
    assert m.provenance.launcher == "torchrun"
    assert m.provenance.backend == "gloo"
    assert len(set(m.parameter_checksums)) == 1
    assert listening <= {"127.0.0.1", "::1"}
    assert plan_sweep(tiny(), [2], [8], seconds_per_point=0.3).points == sweep.points


def test_torchrun_starts_only_ddp(tiny: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuyard.measure.training import plan

    with pytest.raises(UnknownName, match="did you mean 'torchrun'"):
        plan_sweep(tiny(), [1], [4], launcher="torchrn")
    monkeypatch.setattr(plan, "check_strategy", lambda *_a, **_k: None)
    with pytest.raises(UserMistake, match=r"torchrun.*horovod"):
        plan_sweep(tiny(), [1], [4], strategy="horovod", launcher="torchrun")
