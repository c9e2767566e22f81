"""How the agents of torchrun meet: through the run's own store, and on one machine without any.

torchrun's own ways either listen on every interface, or keep pickled state where others may write.
"""

from typing import Any

import torch.distributed as dist
from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousInfo,
    RendezvousParameters,
    RendezvousStoreInfo,
)

from gpuyard.run.protocol import TORCHRUN_BACKEND, Rendezvous
from gpuyard.run.store import RunStore, StoreKeeper


class AgentRendezvous(RendezvousHandler):
    """Who is which is known beforehand, so agents only wait for each other."""

    def __init__(
        self,
        asked: RendezvousParameters,
        rendezvous: Rendezvous | None,
        *,
        keeps: bool,
        seconds: float,
    ) -> None:
        self._asked, self._rendezvous, self._keeps = asked, rendezvous, keeps
        self._seconds = seconds
        self._store: Any = None

    def get_backend(self) -> str:
        return TORCHRUN_BACKEND

    def next_rendezvous(self) -> RendezvousInfo:
        address, port = "127.0.0.1", 0
        if self._rendezvous is None:
            self._store = dist.HashStore()  # type: ignore[attr-defined]
        else:
            address, port = self._rendezvous.address, self._rendezvous.port
            if self._keeps:
                StoreKeeper(self._rendezvous)
            self._store = RunStore(self._rendezvous, self._seconds)
        return RendezvousInfo(
            dist.PrefixStore("agents", self._store),  # type: ignore[attr-defined]
            int(self._asked.config["rank"]),
            self._asked.max_nodes,
            RendezvousStoreInfo(address, port),
        )

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """There is no second round."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return str(self._asked.run_id)

    def shutdown(self) -> bool:
        return True
