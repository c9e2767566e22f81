"""Copies between host and GPUs under CUDA's clock. `torch` is given, and only a few of its calls are used.

Not yet run on GPUs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from gpuyard.measure.links.records import PlannedLink

_PIECES = 16  # of a staged message: the second copy starts when the first piece is in host memory


@dataclass(frozen=True)
class _Lane:
    """One direction: how to start its copy, on which GPUs it runs, and its stream where it has just one."""

    start: Callable[[], None]
    gpus: tuple[int, ...]
    stream: Any | None


class CudaProbe:
    """Times one link after the other; `names` are the machine graph's names in torch's order."""

    def __init__(
        self,
        torch: Any,
        names: Sequence[str],
        size_bytes: int,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._torch, self._size, self._clock = torch, size_bytes, clock
        self._index = {name: index for index, name in enumerate(names)}

    def reaches(self, a: str, b: str) -> bool:
        """Whether both can read the other's memory."""
        can = self._torch.cuda.can_device_access_peer
        i, j = self._index[a], self._index[b]
        return bool(can(i, j) and can(j, i))

    def seconds(self, link: PlannedLink, repeats: int) -> list[float]:
        """Each repeat moves the whole size in each direction; the first, which sets up, is not counted."""
        lanes = [self._lane(link.source, link.target, peer=link.peer)]
        if link.direction == "both-ways":
            lanes.append(self._lane(link.target, link.source, peer=link.peer))
        one_stream = lanes[0].stream if len(lanes) == 1 else None
        took = [
            self._by_events(lanes[0], one_stream) if one_stream else self._by_clock(lanes)
            for _ in range(1 + repeats)
        ]
        return took[1:]

    def _by_events(self, lane: _Lane, stream: Any) -> float:
        began, ended = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record(stream)
        lane.start()
        ended.record(stream)
        ended.synchronize()
        return float(began.elapsed_time(ended)) / 1e3  # milliseconds

    def _by_clock(self, lanes: Sequence[_Lane]) -> float:
        """An event belongs to one GPU: what runs on two is timed from outside."""
        self._synchronize(lanes)
        began = self._clock()
        for lane in lanes:
            lane.start()
        self._synchronize(lanes)
        return self._clock() - began

    def _synchronize(self, lanes: Sequence[_Lane]) -> None:
        for gpu in sorted({gpu for lane in lanes for gpu in lane.gpus}):
            self._torch.cuda.synchronize(gpu)

    def _lane(self, source: str, target: str, *, peer: bool | None) -> _Lane:
        if source == "host" or target == "host":
            return self._host_lane(source, target)
        i, j = self._index[source], self._index[target]
        return self._peer_lane(i, j) if peer else self._staged_lane(i, j)

    def _host_lane(self, source: str, target: str) -> _Lane:
        gpu = self._index[target if source == "host" else source]
        stream = self._torch.cuda.Stream(device=gpu)
        sent, taken = self._pinned(), self._on(gpu)
        if source != "host":
            sent, taken = taken, sent

        def start() -> None:
            with self._torch.cuda.stream(stream):
                taken.copy_(sent, non_blocking=True)

        return _Lane(start, (gpu,), stream)

    def _peer_lane(self, i: int, j: int) -> _Lane:
        # torch copies on the source's current stream and makes both GPUs' current streams wait for each
        # other (ATen/native/cuda/Copy.cu), so each direction needs a stream of its own on both: with
        # shared ones the two directions would run one after the other
        here, there = (self._torch.cuda.Stream(device=gpu) for gpu in (i, j))
        sent, taken = self._on(i), self._on(j)

        def start() -> None:
            with self._torch.cuda.stream(there), self._torch.cuda.stream(here):
                taken.copy_(sent, non_blocking=True)

        return _Lane(start, (i, j), here)

    def _staged_lane(self, i: int, j: int) -> _Lane:
        """Torch turns peer access on by itself and never off, so going without is two copies."""
        up, down = (self._torch.cuda.Stream(device=gpu) for gpu in (i, j))
        sent, between, taken = (
            memory.chunk(_PIECES) for memory in (self._on(i), self._pinned(), self._on(j))
        )

        def start() -> None:
            for source, host, target in zip(sent, between, taken, strict=True):
                with self._torch.cuda.stream(up):
                    host.copy_(source, non_blocking=True)
                there = self._torch.cuda.Event()
                there.record(up)
                down.wait_event(there)
                with self._torch.cuda.stream(down):
                    target.copy_(host, non_blocking=True)

        return _Lane(start, (i, j), None)

    def _on(self, gpu: int) -> Any:
        return self._torch.empty(self._size, dtype=self._torch.uint8, device=f"cuda:{gpu}")

    def _pinned(self) -> Any:
        return self._torch.empty(self._size, dtype=self._torch.uint8, pin_memory=True)


def name_gpus(torch: Any, addresses: Sequence[str]) -> tuple[str, ...]:
    """The machine graph's name of each GPU that torch sees: CUDA puts the fastest first and may see a few
    only, the graph goes by PCI address."""
    seen = [
        _address(torch.cuda.get_device_properties(index))
        for index in range(torch.cuda.device_count())
    ]
    if all(address in addresses for address in seen):
        return tuple(f"GPU{addresses.index(str(address))}" for address in seen)
    return tuple(f"GPU{index}" for index in range(len(seen)))


def _address(properties: Any) -> str | None:
    try:
        return (
            f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}"
            f":{properties.pci_device_id:02x}.0"
        )
    except AttributeError:  # a torch from before these were there
        return None
