"""Times copies between host and GPUs with CUDA. `torch` is a parameter, so that tests can pass a fake.

Not yet run on GPUs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from gpuyard.measure.links.records import PlannedLink

_CHUNKS = 16  # of a staged copy: the second copy starts when the first chunk is in host memory


@dataclass(frozen=True)
class _Copy:
    """A copy in one direction: how to start it, its GPUs, and its stream if it has only one."""

    start: Callable[[], None]
    gpus: tuple[int, ...]
    stream: Any | None


class CudaProbe:
    """Times one link after another; `names` are the machine graph's names in torch's order."""

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

    def has_peer_access(self, a: str, b: str) -> bool:
        """Return whether each GPU can read the other's memory."""
        can_access = self._torch.cuda.can_device_access_peer
        i, j = self._index[a], self._index[b]
        return bool(can_access(i, j) and can_access(j, i))

    def time_link(self, link: PlannedLink, repeats: int) -> list[float]:
        """Time repeats that each move the whole size in each direction, after an untimed first one."""
        copies = [self._build_copy(link.source, link.target, peer=link.peer)]
        if link.direction == "both-ways":
            copies.append(self._build_copy(link.target, link.source, peer=link.peer))
        stream = copies[0].stream if len(copies) == 1 else None
        seconds = [
            self._time_with_events(copies[0], stream) if stream else self._time_with_clock(copies)
            for _ in range(1 + repeats)
        ]
        return seconds[1:]

    def _time_with_events(self, copy: _Copy, stream: Any) -> float:
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record(stream)
        copy.start()
        end.record(stream)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3  # milliseconds

    def _time_with_clock(self, copies: Sequence[_Copy]) -> float:
        """Time copies that use two GPUs from the host, as a CUDA event belongs to one GPU."""
        self._synchronize(copies)
        start = self._clock()
        for copy in copies:
            copy.start()
        self._synchronize(copies)
        return self._clock() - start

    def _synchronize(self, copies: Sequence[_Copy]) -> None:
        for gpu in sorted({gpu for copy in copies for gpu in copy.gpus}):
            self._torch.cuda.synchronize(gpu)

    def _build_copy(self, source: str, target: str, *, peer: bool | None) -> _Copy:
        if source == "host" or target == "host":
            return self._build_host_copy(source, target)
        i, j = self._index[source], self._index[target]
        return self._build_peer_copy(i, j) if peer else self._build_staged_copy(i, j)

    def _build_host_copy(self, source: str, target: str) -> _Copy:
        gpu = self._index[target if source == "host" else source]
        stream = self._torch.cuda.Stream(device=gpu)
        sent, received = self._allocate_pinned(), self._allocate_on(gpu)
        if source != "host":
            sent, received = received, sent

        def start() -> None:
            with self._torch.cuda.stream(stream):
                received.copy_(sent, non_blocking=True)

        return _Copy(start, (gpu,), stream)

    def _build_peer_copy(self, i: int, j: int) -> _Copy:
        # torch copies on the source's current stream and makes both GPUs' current streams wait for each
        # other (ATen/native/cuda/Copy.cu), so each direction needs its own stream on both GPUs: with
        # shared ones the two directions would run one after the other
        source_stream, target_stream = (self._torch.cuda.Stream(device=gpu) for gpu in (i, j))
        sent, received = self._allocate_on(i), self._allocate_on(j)

        def start() -> None:
            with self._torch.cuda.stream(target_stream), self._torch.cuda.stream(source_stream):
                received.copy_(sent, non_blocking=True)

        return _Copy(start, (i, j), source_stream)

    def _build_staged_copy(self, i: int, j: int) -> _Copy:
        """Build a copy through host memory, as torch enables peer access by itself and never disables it."""
        up, down = (self._torch.cuda.Stream(device=gpu) for gpu in (i, j))
        sent, staged, received = (
            memory.chunk(_CHUNKS)
            for memory in (self._allocate_on(i), self._allocate_pinned(), self._allocate_on(j))
        )

        def start() -> None:
            for source, host, target in zip(sent, staged, received, strict=True):
                with self._torch.cuda.stream(up):
                    host.copy_(source, non_blocking=True)
                arrival = self._torch.cuda.Event()
                arrival.record(up)
                down.wait_event(arrival)
                with self._torch.cuda.stream(down):
                    target.copy_(host, non_blocking=True)

        return _Copy(start, (i, j), None)

    def _allocate_on(self, gpu: int) -> Any:
        return self._torch.empty(self._size, dtype=self._torch.uint8, device=f"cuda:{gpu}")

    def _allocate_pinned(self) -> Any:
        return self._torch.empty(self._size, dtype=self._torch.uint8, pin_memory=True)


def name_gpus(torch: Any, addresses: Sequence[str]) -> tuple[str, ...]:
    """Return the machine graph's name of each GPU that torch sees.

    The graph numbers GPUs by PCI address. CUDA lists the fastest first, and may see only some of them.
    """
    visible = [
        _format_address(torch.cuda.get_device_properties(index))
        for index in range(torch.cuda.device_count())
    ]
    if all(address in addresses for address in visible):
        return tuple(f"GPU{addresses.index(str(address))}" for address in visible)
    return tuple(f"GPU{index}" for index in range(len(visible)))


def _format_address(properties: Any) -> str | None:
    try:
        return (
            f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}"
            f":{properties.pci_device_id:02x}.0"
        )
    except AttributeError:  # an older torch does not have these
        return None
