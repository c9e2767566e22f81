"""Tiny workloads whose models rank processes can import, and a store of their own."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.measure import ResultsStore
from gpuyard.specs import Dataset, Target, Tensor, Workload

Build = Callable[..., Workload]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.fixture
def store(tmp_path: Path) -> ResultsStore:
    return ResultsStore(tmp_path / "deep" / "results.sqlite")


@pytest.fixture
def tiny() -> Build:
    """A workload of tests/measure/tiny_models.py."""

    def build(
        factory: str = "classifier", *, source: str = "synthetic", **more: object
    ) -> Workload:
        given = {
            "input": Tensor(shape=(16,)),
            "target": Target(classes=4),
            "dataset": Dataset(samples=200, source=source),
            **more,
        }
        return Workload.model_validate(
            {"name": f"tiny-{factory}", "model": f"tiny_models:{factory}", **given}
        )

    return build
