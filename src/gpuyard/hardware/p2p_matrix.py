"""Reads `nvidia-smi topo -p2p`: which GPUs may read and write each other's memory."""

from collections.abc import Mapping
from dataclasses import dataclass

from gpuyard.hardware.matrix_text import PEER_STATUSES, find_matrix


@dataclass(frozen=True)
class PeerMatrix:
    """The status of every two GPUs, as it was printed: OK, or why there is no peer access."""

    source: str
    gpus: tuple[str, ...]
    statuses: Mapping[tuple[str, str], str]

    @property
    def peers(self) -> frozenset[frozenset[str]]:
        """Pairs with access in both directions: `MachineGraph.pcie_peers`."""
        return frozenset(
            frozenset((a, b))
            for (a, b), status in self.statuses.items()
            if status == self.statuses[b, a] == "OK"
        )


def parse_p2p_matrix(text: str, source: str) -> PeerMatrix:
    """The first peer matrix in the text; `source` is the file's name for messages."""
    table = find_matrix(text, source, PEER_STATUSES, "nvidia-smi topo -p2p r")
    cells = table.read(PEER_STATUSES)
    return PeerMatrix(
        source,
        tuple(device.text for device in table.devices),
        {pair: word.text for pair, word in cells.items()},
    )
