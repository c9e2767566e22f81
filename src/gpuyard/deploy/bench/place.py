"""A deployment's machines as a place to measure in, at one speed of their links."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from gpuyard.run.places.hosts import Hosts
from gpuyard.run.places.place import RunPlace


@dataclass(frozen=True)
class DeployedHosts(Hosts):
    """Reached as the deployment says; where its target can, the links are set while something runs."""

    link_bytes_per_second: float | None = None
    """Between machines; None: nobody knows."""
    set_link: Callable[[float], None] | None = None
    usual_link_bytes_per_second: float | None = None
    """To which links go back."""

    def ring_link_bytes_per_second(self, workers: int) -> float | None:
        one_machine = self.seats(workers)[-1].node == 0
        return None if one_machine else self.link_bytes_per_second

    def identity(self) -> Mapping[str, Any] | None:
        link = self.link_bytes_per_second
        return {**(super().identity() or {}), **({} if link is None else {"link": link})}

    def record(self, workers: int) -> RunPlace:
        found = super().record(workers)
        return found.model_copy(update={"link_bytes_per_second": self.link_bytes_per_second})

    @contextlib.contextmanager
    def up(self) -> Iterator[Self]:
        if self.set_link is None or self.link_bytes_per_second is None:
            yield self
            return
        self.set_link(self.link_bytes_per_second)
        try:
            yield self
        finally:
            self.set_link(self.usual_link_bytes_per_second or self.link_bytes_per_second)
