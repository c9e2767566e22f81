"""The rendezvous of torchrun's agents: the run's own store, or none on a single machine.

torchrun's own backends either listen on every interface or keep pickled state where others may write.
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
from gpuyard.run.store import RunStore, StoreServer


class AgentRendezvous(RendezvousHandler):
    """A rendezvous with fixed ranks: agents only wait for each other."""

    def __init__(
        self,
        parameters: RendezvousParameters,
        rendezvous: Rendezvous | None,
        *,
        serves: bool,
        seconds: float,
    ) -> None:
        self._parameters, self._rendezvous, self._serves = parameters, rendezvous, serves
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
            if self._serves:
                StoreServer(self._rendezvous)
            self._store = RunStore(self._rendezvous, self._seconds)
        return RendezvousInfo(
            dist.PrefixStore("agents", self._store),  # type: ignore[attr-defined]
            int(self._parameters.config["rank"]),
            self._parameters.max_nodes,
            RendezvousStoreInfo(address, port),
        )

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        """Do nothing: there is no second round."""

    def num_nodes_waiting(self) -> int:
        return 0

    def get_run_id(self) -> str:
        return str(self._parameters.run_id)

    def shutdown(self) -> bool:
        return True
