"""The tables of `nvidia-smi topo` as real machines print them, and errors for broken ones."""

import re

import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.readers.matrices import parse_p2p_matrix, parse_topo_matrix
from tests.hardware.recordings import RECORDED, SOURCES, list_recordings, read_recording

SMALL = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPHB\t0-7\nGPU1\tPHB\t X \t0-7\n"


@pytest.mark.parametrize("name", list_recordings("topo-m"))
def test_recorded_matrix(name: str) -> None:
    case = SOURCES[name]
    matrix = parse_topo_matrix(read_recording(name), name)
    assert (len(matrix.gpus), len(matrix.nics)) == (case["gpus"], case["nics"])
    expected = case["expected"]
    for pair, printed in expected["pairs"].items():
        a, b = pair.split("-")
        assert matrix.classes[a, b] == matrix.classes[b, a] == printed
    for key, value in expected.items():
        if match := re.fullmatch(r"(cpu_affinity|numa_affinity|gpu_numa_id)_(gpu\d+)", key):
            assert getattr(matrix, match[1]).get(match[2].upper(), "") == value, key
    assert expected.get("nic_names", {}).items() <= matrix.nic_names.items()


@pytest.mark.parametrize("name", list_recordings("topo-m", bad=True))
def test_recorded_broken_matrix(name: str) -> None:
    expected = SOURCES[name]["expected"]
    with pytest.raises(UserMistake) as refused:
        parse_topo_matrix(read_recording(name), name)
    message = str(refused.value)
    assert re.match(rf"{re.escape(name)}:\d+:\d+: ", message)
    for row in [expected["error_row"]] if "error_row" in expected else expected["missing_rows"]:
        assert row in message


def test_every_recording_has_its_source() -> None:
    files = {f"{path.parent.name}/{path.name}" for path in RECORDED.glob("*/*")}
    assert files == set(SOURCES)


@pytest.mark.parametrize(
    "text",
    [
        SMALL.replace("\n", "\r\n"),
        "\ufeff" + SMALL,
        SMALL.expandtabs(8),
        SMALL.replace("\t", "\t\t"),
        f"me@node:~$ nvidia-smi topo -m\n{SMALL}me@node:~$ exit\n",
        f"GPU0 and GPU1 are the fast ones.\n\n{SMALL}",
        SMALL.replace("\tGPU0\tGPU1", "\t\x1b[4mGPU0\tGPU1").replace("ity\n", "ity\x1b[0m\n"),
        SMALL.replace("\tGPU0\tGPU1", "\t[4mGPU0\tGPU1").replace("ity\n", "ity[0m\n"),
        SMALL.replace("\nGPU1", "\n\nGPU1"),
    ],
    ids=["crlf", "bom", "spaces", "doubled tabs", "prompt", "prose", "colors", "lost escapes", "blank"],
)  # fmt: skip
def test_the_format_around_a_table_does_not_matter(text: str) -> None:
    matrix = parse_topo_matrix(text, "topo.txt")
    assert matrix.devices == ("GPU0", "GPU1")
    assert matrix.classes["GPU1", "GPU0"] == "PHB"
    assert matrix.cpu_affinity == {"GPU0": "0-7", "GPU1": "0-7"}


THREE = (
    "\tGPU0\tGPU1\tGPU2\tCPU Affinity\n"
    "GPU0\t X \tPIX\tSYS\t0-7\n"
    "GPU1\tPIX\t X \tSYS\t0-7\n"
    "GPU2\tSYS\tSYS\t X \t8-15\n"
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("X \tSYS", "X \tSYX", "topo.txt:3:14: 'SYX' is not a link class; did you mean 'SYS'? (row GPU1, column GPU2)"),
        ("X \tSYS\t", "X \t", "topo.txt:3:14: row GPU1 has 2 of 3 cells"),
        ("SYS\tSYS\t X \t8-15\n", "SYS", "topo.txt:4:9: row GPU2 has 1 of 3 cells"),
        ("GPU2\tSYS\tSYS\t X \t8-15\n", "", "topo.txt:1:12: the header lists 3 devices, but row GPU2 is missing"),
        ("GPU2\tSYS\tSYS", "GPU2\tSYS\tPHB", "topo.txt:4:10: GPU2 to GPU1 is 'PHB' here, but GPU1 to GPU2 is 'SYS' in line 3"),
        ("GPU2\tSYS", "GPU1\tSYS", "topo.txt:4:1: row GPU1 appears twice"),
        ("GPU2\tSYS", "GPU9\tSYS", "topo.txt:4:1: row GPU9 has no column in the header"),
        ("GPU1\tPIX\t X ", "GPU1\t X \tPIX", "topo.txt:3:7: 'X' in row GPU1, column GPU0"),
        ("\tGPU0\tGPU1\tGPU2", "\tGPU0\tGPU1\tGPU1", "topo.txt:1:7: GPU1 appears twice in the header"),
        ("X \tSYS", "X \tSYS\tSYS", "topo.txt:3:18: row GPU1 has more than 3 cells"),
        ("8-15", "8..15", "topo.txt:4:18: expected a list of numbers like 0-7,16-23 for CPU Affinity, got '8..15'"),
        (THREE, "nothing to see\n", "topo.txt:1:1: table of `nvidia-smi topo -m`"),
        (THREE, "", "topo.txt:1:1: table of `nvidia-smi topo -m`"),
    ],
)  # fmt: skip
def test_errors_name_the_position_and_the_problem(old: str, new: str, message: str) -> None:
    assert old in THREE
    with pytest.raises(UserMistake) as refused:
        parse_topo_matrix(THREE.replace(old, new), "topo.txt")
    assert str(refused.value).startswith(message)


def test_an_empty_value_is_recognized_by_its_column() -> None:
    text = (
        "        GPU0    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
        "GPU0     X                      1               N/A\n"
    )
    matrix = parse_topo_matrix(text, "topo.txt")
    assert (matrix.cpu_affinity, matrix.numa_affinity) == ({}, {"GPU0": "1"})


@pytest.mark.parametrize("name", list_recordings("p2p"))
def test_recorded_peer_statuses(name: str) -> None:
    case = SOURCES[name]
    matrix = parse_p2p_matrix(read_recording(name), name)
    assert len(matrix.gpus) == case["gpus"]
    for pair, status in case["expected"]["pairs"].items():
        a, b = pair.split("-")
        assert matrix.statuses[a, b] == status
        assert (frozenset((a, b)) in matrix.peers) == (status == "OK")


def test_peer_access_in_one_direction_does_not_count() -> None:
    matrix = parse_p2p_matrix(" \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tTNS\tX\n", "p2p.txt")
    assert matrix.peers == frozenset()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (" \tGPU0\tGPU1\n GPU0\tX\tOKK\n GPU1\tOK\tX\n",
         "p2p.txt:2:9: 'OKK' is not a peer status; did you mean 'OK'? (row GPU0, column GPU1)"),
        (" \tGPU0\tGPU1\n GPU0\tX\tOK\n",
         "p2p.txt:1:8: the header lists 2 devices, but row GPU1 is missing"),
        ("", "p2p.txt:1:1: table of `nvidia-smi topo -p2p r`"),
    ],
)  # fmt: skip
def test_errors_in_peer_tables_name_the_position(text: str, message: str) -> None:
    with pytest.raises(UserMistake) as refused:
        parse_p2p_matrix(text, "p2p.txt")
    assert str(refused.value).startswith(message)
