"""The CUDA probe asks torch for the right copies. No GPU runs here: see docs/measure.md."""

import pytest

from gpuyard.measure.links.plan import list_gpu_links
from gpuyard.measure.links.probe import CudaProbe, name_gpus
from gpuyard.measure.links.records import Direction, PlannedLink
from tests.measure.links.fake_cuda import Copied, FakeTorch

SIZE = 1_000_000


def probe(torch: FakeTorch) -> CudaProbe:
    return CudaProbe(torch, ["GPU0", "GPU1"], SIZE, clock=lambda: torch.now)


def link(
    source: str, target: str, direction: Direction = "one-way", peer: bool | None = None
) -> PlannedLink:
    kind = "host-gpu" if "host" in (source, target) else "gpu-gpu"
    return PlannedLink.model_validate(
        {"kind": kind, "source": source, "target": target, "direction": direction, "peer": peer}
    )


def places(copies: list[Copied]) -> list[tuple[str, str]]:
    return [(copy.source, copy.target) for copy in copies]


@pytest.mark.parametrize(
    ("source", "target", "copied"),
    [("host", "GPU1", ("pinned", "cuda:1")), ("GPU1", "host", ("cuda:1", "pinned"))],
)
def test_host_copies_are_pinned_and_timed_by_events(
    source: str, target: str, copied: tuple[str, str]
) -> None:
    torch = FakeTorch()
    seconds = probe(torch).time_link(link(source, target), 3)
    assert places(torch.copies) == [copied] * 4  # one that is not counted, then three
    assert {copy.size for copy in torch.copies} == {SIZE}
    assert seconds == [pytest.approx(1e-3)] * 3
    assert ("synchronize", 1) not in torch.calls


def test_the_copy_runs_on_the_stream_that_the_events_are_on() -> None:
    for planned in (link("host", "GPU1"), link("GPU1", "GPU0", peer=True)):
        torch = FakeTorch()
        probe(torch).time_link(planned, 1)
        (timed,) = {
            call[1] for call in torch.calls if isinstance(call, tuple) and call[0] == "record"
        }
        assert timed.device == 1  # torch copies on a stream of the source
        assert all(copy.streams[1] is timed for copy in torch.copies)


def test_host_both_ways_run_on_two_streams_at_once() -> None:
    torch = FakeTorch()
    seconds = probe(torch).time_link(link("host", "GPU0", "both-ways"), 2)
    assert places(torch.copies) == [("pinned", "cuda:0"), ("cuda:0", "pinned")] * 3
    down, up = torch.copies[:2]
    assert down.streams[0] is not up.streams[0]
    assert seconds == [pytest.approx(2e-3)] * 2  # this fake runs one copy after the other
    assert waits_between(torch, 0, 1) == []


def test_peers_both_ways_share_no_stream_on_either_gpu() -> None:
    """torch makes the current streams of both GPUs wait for each copy: shared ones would serialize."""
    torch = FakeTorch()
    probe(torch).time_link(link("GPU0", "GPU1", "both-ways", peer=True), 1)
    assert places(torch.copies[:2]) == [("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")]
    there, back = torch.copies[:2]
    assert there.streams[0] is not back.streams[0]
    assert there.streams[1] is not back.streams[1]
    assert set(there.streams) == set(back.streams) == {0, 1}
    assert waits_between(torch, 0, 1) == []
    assert {("synchronize", 0), ("synchronize", 1)} <= {
        c for c in torch.calls if isinstance(c, tuple)
    }


def test_without_peer_access_each_piece_goes_up_and_then_down() -> None:
    torch = FakeTorch()
    seconds = probe(torch).time_link(link("GPU0", "GPU1", peer=False), 1)
    assert set(places(torch.copies)) == {("cuda:0", "pinned"), ("pinned", "cuda:1")}
    assert sum(c.size for c in torch.copies if c.target == "cuda:1") == 2 * SIZE
    assert sum(c.size for c in torch.copies if c.source == "cuda:0") == 2 * SIZE
    assert seconds == [pytest.approx(2e-3)]
    ups = [
        i for i, call in enumerate(torch.calls) if isinstance(call, Copied) and "0" in call.source
    ]
    for at in ups:
        up, recorded, waited, down = torch.calls[at : at + 4]
        assert recorded == ("record", up.streams[0])
        assert waited == ("wait", down.streams[1], up.streams[0])
        assert (down.source, down.target, down.size) == ("pinned", "cuda:1", up.size)


def test_staged_both_ways_keep_apart() -> None:
    torch = FakeTorch()
    probe(torch).time_link(link("GPU0", "GPU1", "both-ways", peer=False), 1)
    by_lane = {(copy.source, copy.target): copy.streams for copy in torch.copies}
    assert by_lane["cuda:0", "pinned"][0] is not by_lane["pinned", "cuda:0"][0]
    assert by_lane["cuda:1", "pinned"][1] is not by_lane["pinned", "cuda:1"][1]


def test_every_pair_is_planned_in_every_way() -> None:
    pairs = [p for p in list_gpu_links(["GPU0", "GPU1"], probe(FakeTorch())) if p.kind == "gpu-gpu"]
    assert [(p.source, p.target, p.direction, p.peer) for p in pairs] == [
        ("GPU0", "GPU1", "one-way", True),
        ("GPU1", "GPU0", "one-way", True),
        ("GPU0", "GPU1", "both-ways", True),
        ("GPU0", "GPU1", "one-way", False),
        ("GPU1", "GPU0", "one-way", False),
        ("GPU0", "GPU1", "both-ways", False),
    ]
    unreached = list_gpu_links(["GPU0", "GPU1"], probe(FakeTorch(peers=False)))
    assert {p.peer for p in unreached if p.kind == "gpu-gpu"} == {False}


def test_host_links_of_every_gpu_are_planned() -> None:
    planned = [p for p in list_gpu_links(["GPU0"], None) if p.kind == "host-gpu"]
    assert [p.label for p in planned] == ["host → GPU0", "GPU0 → host", "host ⇄ GPU0"]


def test_gpus_have_the_names_of_the_machine_graph() -> None:
    addresses = ("0000:01:00.0", "0000:41:00.0", "0000:c1:00.0")
    assert name_gpus(FakeTorch(buses=(0xC1, 0x01)), addresses) == ("GPU2", "GPU0")
    # a container may see a GPU that its sysfs does not have: then torch's order is all there is
    assert name_gpus(FakeTorch(buses=(0xC1, 0x99)), addresses) == ("GPU0", "GPU1")


def waits_between(torch: FakeTorch, first: int, second: int) -> list[object]:
    """Return the calls between two copies."""
    at = [i for i, call in enumerate(torch.calls) if isinstance(call, Copied)]
    return torch.calls[at[first] + 1 : at[second]]
