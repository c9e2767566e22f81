"""A fake of the torch.cuda calls that the probe uses; it records them and moves no bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


@dataclass(eq=False)
class Stream:
    torch: "FakeTorch"
    device: int

    def wait_event(self, event: "Event") -> None:
        self.torch.calls.append(("wait", self, event.stream))


@dataclass(eq=False)
class Event:
    torch: "FakeTorch"
    enable_timing: bool
    stream: Stream | None = None
    milliseconds: float = 0.0

    def record(self, stream: Stream) -> None:
        # an event belongs to the GPU of the first stream that records it
        if self.stream is not None and self.stream.device != stream.device:
            raise RuntimeError("event device does not match recording stream's device")
        self.stream, self.milliseconds = stream, self.torch.now * 1e3
        self.torch.calls.append(("record", stream))

    def synchronize(self) -> None:
        self.torch.calls.append(("event synchronize", self.stream))

    def elapsed_time(self, end: "Event") -> float:
        if not (self.enable_timing and end.enable_timing):
            raise RuntimeError("both events must be made with enable_timing=True")
        if self.stream is None or end.stream is None or self.stream.device != end.stream.device:
            raise RuntimeError("events of two GPUs cannot be subtracted")
        return end.milliseconds - self.milliseconds


@dataclass(frozen=True)
class Copied:
    """One copy, with the current stream of each GPU at its start."""

    source: str
    target: str
    size: int
    streams: dict[int, Stream]


@dataclass(eq=False)
class Tensor:
    torch: "FakeTorch"
    size: int
    place: str

    def chunk(self, pieces: int) -> tuple["Tensor", ...]:
        each = -(-self.size // pieces)
        starts = range(0, self.size, each)
        return tuple(Tensor(self.torch, min(each, self.size - s), self.place) for s in starts)

    def copy_(self, source: "Tensor", *, non_blocking: bool) -> None:
        if self.size != source.size or not non_blocking:
            raise RuntimeError("a copy of another size, or one that blocks")
        self.torch.now += self.size / self.torch.bytes_per_second
        self.torch.calls.append(
            Copied(source.place, self.place, self.size, dict(self.torch.current))
        )


@dataclass(eq=False)
class FakeTorch:
    """A torch whose clock advances only with copies, by their size over the rate."""

    gpus: int = 2
    peers: bool = True
    bytes_per_second: float = 1e9
    now: float = 0.0
    uint8: str = "uint8"
    calls: list[Any] = field(default_factory=list)
    current: dict[int, Stream] = field(default_factory=dict)
    buses: tuple[int, ...] = (1, 2)

    @property
    def cuda(self) -> Any:
        return SimpleNamespace(
            Event=lambda enable_timing=False: Event(self, enable_timing),
            Stream=lambda device: Stream(self, device),
            stream=self._use,
            synchronize=lambda gpu: self.calls.append(("synchronize", gpu)),
            can_device_access_peer=lambda _a, _b: self.peers,
            device_count=lambda: self.gpus,
            get_device_properties=lambda i: SimpleNamespace(
                pci_domain_id=0, pci_bus_id=self.buses[i], pci_device_id=0
            ),
        )

    def empty(
        self, size: int, *, dtype: str, device: str = "cpu", pin_memory: bool = False
    ) -> Tensor:
        if dtype != "uint8" or (device == "cpu") != pin_memory:
            raise RuntimeError("bytes are expected, and host memory that is pinned")
        return Tensor(self, size, "pinned" if pin_memory else device)

    @contextmanager
    def _use(self, stream: Stream) -> Iterator[None]:
        before = dict(self.current)
        self.current[stream.device] = stream
        try:
            yield
        finally:
            self.current = before

    @property
    def copies(self) -> list[Copied]:
        return [call for call in self.calls if isinstance(call, Copied)]
