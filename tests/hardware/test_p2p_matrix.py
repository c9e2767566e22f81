"""`nvidia-smi topo -p2p`: who may reach whose memory."""

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.p2p_matrix import parse_p2p_matrix
from tests.hardware.recordings import SOURCES, recorded, text_of


@pytest.mark.parametrize("name", recorded("p2p"))
def test_recorded_statuses(name: str) -> None:
    case = SOURCES[name]
    matrix = parse_p2p_matrix(text_of(name), name)
    assert len(matrix.gpus) == case["gpus"]
    for pair, status in case["expected"]["pairs"].items():
        a, b = pair.split("-")
        assert matrix.statuses[a, b] == status
        assert (frozenset((a, b)) in matrix.peers) == (status == "OK")


def test_access_in_one_direction_only_is_none() -> None:
    matrix = parse_p2p_matrix(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tTNS\tX\n", "p2p.txt")
    assert matrix.peers == frozenset()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" \tGPU0\tGPU1\n GPU0\tX\tOKK\n GPU1\tOK\tX\n",
         "p2p.txt:2:9: 'OKK' is not a peer status; did you mean 'OK'? (row GPU0, column GPU1)"),
        (" \tGPU0\tGPU1\n GPU0\tX\tOK\n",
         "p2p.txt:1:8: the header names 2 devices, and the row GPU1 is missing"),
        ("", "p2p.txt:1:1: there is no table of `nvidia-smi topo -p2p r` here"),
    ],
)  # fmt: skip
def test_what_is_wrong_and_where(text: str, message: str) -> None:
    with pytest.raises(UserMistake) as refused:
        parse_p2p_matrix(text, "p2p.txt")
    assert str(refused.value).startswith(message)
