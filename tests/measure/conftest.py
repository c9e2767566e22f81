"""Fixtures: tiny workloads whose models rank processes can import, a store, and links of four GPUs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.catalog import gpus
from gpuyard.hardware import MachineGraph, build_preset
from gpuyard.measure.links.compare import compare, find_slow_links
from gpuyard.measure.links.records import HostFacts, LinkBench, LinkMeasurement
from gpuyard.measure.record import Testbed
from gpuyard.measure.store import ResultsStore
from gpuyard.specs import Dataset, Tensor, TrainingTarget, Workload

Build = Callable[..., Workload]
Measured = Callable[..., LinkMeasurement]
MakeBench = Callable[..., LinkBench]


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
        fields = {
            "input": Tensor(shape=(16,)),
            "target": TrainingTarget(classes=4),
            "dataset": Dataset(samples=200, source=source),
            **more,
        }
        return Workload.model_validate(
            {"name": f"tiny-{factory}", "model": f"tiny_models:{factory}", **fields}
        )

    return build


@pytest.fixture
def graph() -> MachineGraph:
    """Four GPUs on PCIe 3.0 x16 with 12 GB/s per slot: 0 and 1 on one switch, 2 and 3 on the other."""
    return build_preset("single-root", gpus().get("gtx-1080-ti"), 4)


@pytest.fixture
def healthy() -> HostFacts:
    return HostFacts(virtual_machine=None, iommu="off", acs_bridges=(), busy_share=0.01)


@pytest.fixture
def measured() -> Measured:
    def make(
        source: str, target: str, gb_per_second: float, *, peer: bool | None = None, **more: object
    ) -> LinkMeasurement:
        fields = {
            "kind": "host-gpu" if "host" in (source, target) else "gpu-gpu",
            "source": source,
            "target": target,
            "direction": "one-way",
            "peer": peer,
            "bytes": 10**9,
            "seconds": (1 / gb_per_second,),
            "bytes_per_second": gb_per_second * 1e9,
            "spread": 0.01,
            **more,
        }
        return LinkMeasurement.model_validate(fields)

    return make


@pytest.fixture
def testbed() -> Testbed:
    return Testbed(
        gpuyard="0.1.0",
        torch="2.13.0",
        python="3.11.7",
        os="Debian",
        kernel="6.1",
        host="here",
        cpu_model="CPU",
        cores=2,
        memory_bytes=1000,
        gpus=("NVIDIA A", "NVIDIA B"),
    )


@pytest.fixture
def make_bench(
    graph: MachineGraph, healthy: HostFacts, measured: Measured, testbed: Testbed
) -> Callable[..., LinkBench]:
    """A bench of three links, one of them slow."""

    def make(number: int = 1) -> LinkBench:
        links = compare(
            graph,
            [
                measured("host", "GPU0", 11.9),
                measured("GPU0", "GPU1", 12.1, peer=True),
                measured("GPU1", "GPU0", 5.8, peer=True),
            ],
        )
        return LinkBench(
            id=f"f{number:011x}",
            key=f"links{number}",
            created_at="2026-01-02T03:04:05.678+00:00",
            size_bytes=10**9,
            repeats=1,
            host=testbed,
            facts=healthy,
            model=graph.name,
            links=links,
            findings=find_slow_links(graph, links, healthy),
        )

    return make
