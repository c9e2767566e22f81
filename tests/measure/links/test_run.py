"""A whole bench over a fake of CUDA: planned, measured, compared, and updates as it goes."""

from dataclasses import replace

import pytest

from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.hardware import MachineGraph
from gpuyard.measure.links.plan import LinkPlan, list_gpu_links, list_host_links, plan_links
from gpuyard.measure.links.probe import CudaProbe
from gpuyard.measure.links.run import run_links
from gpuyard.measure.progress import ProgressUpdate
from tests.measure.links.fake_cuda import FakeTorch

SIZE = 1_000_000


def plan_of(torch: FakeTorch) -> LinkPlan:
    """Two GPUs whose every copy runs at the fake's rate."""
    names = ("GPU0", "GPU1")
    probe = CudaProbe(torch, names, SIZE, clock=lambda: torch.now)
    links = (*list_gpu_links(names, probe), *list_host_links(1))
    return replace(plan_links(SIZE, 2), gpus=names, links=links, probe=probe)


def test_a_machine_as_fast_as_its_model(graph: MachineGraph) -> None:
    updates: list[ProgressUpdate] = []
    bench = run_links(
        plan_of(FakeTorch(bytes_per_second=24e9)),
        updates.append,
        discover=lambda: graph,
    )
    assert bench.model == graph.name
    assert bench.findings == ()
    verdicts = {link.verdict for link in bench.links if "gpu" in link.measured.kind}
    assert verdicts == {"as expected"}
    assert (updates[0].description, updates[0].done) == ("host → GPU0", 0)
    assert [progress.done for progress in updates[1::2]] == list(range(1, len(bench.links) + 1))
    assert updates[-1].remaining_seconds == 0
    both = next(link for link in bench.links if link.measured.label == "host ⇄ GPU0")
    assert both.measured.bytes == 2 * SIZE
    assert both.expected_bytes_per_second == 24e9


def test_a_machine_at_half_its_rate(graph: MachineGraph) -> None:
    bench = run_links(plan_of(FakeTorch(bytes_per_second=6e9)), discover=lambda: graph)
    slow = {finding.label for finding in bench.findings}
    assert {"host → GPU0", "GPU1 → host", "GPU0 → GPU1", "GPU0 ⇄ GPU1"} <= slow
    assert all(finding.causes for finding in bench.findings)


def test_peer_access_that_is_off_is_missed_though_discovery_found_none(graph: MachineGraph) -> None:
    torch = FakeTorch(bytes_per_second=12e9, peers=False)
    bench = run_links(plan_of(torch), discover=lambda: replace(graph, pcie_peers=frozenset()))
    named = {f.label: f.causes[0].name for f in bench.findings if f.peer is False}
    assert named["GPU0 → GPU1, staged"] == "no-peer-access"


def test_without_a_graph_there_are_rates_and_a_reason() -> None:
    def nothing() -> MachineGraph:
        raise MissingRequirement("install hwloc")

    bench = run_links(plan_of(FakeTorch()), discover=nothing)
    assert bench.model is None
    assert {link.verdict for link in bench.links} == {"no model"}
    assert "install hwloc" in bench.notes[0]


def test_a_torch_error_is_reported(graph: MachineGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise RuntimeError("CUDA out of memory.\nmore lines")

    monkeypatch.setattr(FakeTorch, "empty", full)
    with pytest.raises(GpuyardError, match=r"host → GPU0 could not .* out of memory\.; try fewer"):
        run_links(plan_of(FakeTorch()), discover=lambda: graph)
