"""Reads the matrices of CUDA's p2pBandwidthLatencyTest and of nvbandwidth."""

import re
from collections.abc import Iterator

from gpuyard.measure.links.records import Direction
from gpuyard.measure.tool_output.readings import LinkReading, LinkTable

SIGNATURE = re.compile(
    r"P2P=(?:Enabled|Disabled).*Matrix|^memcpy (?:CE|SM) .*bandwidth", re.MULTILINE
)
_DEVICE = re.compile(r"^Device:? (\d+)(?:,|:) (?P<name>[^,(\n]+)", re.MULTILINE)
_P2P_TITLE = re.compile(
    r"^(?P<way>Uni|Bi)directional P2P=(?P<peer>Enabled|Disabled) Bandwidth.*GB/s\)"
)
_NV_TITLE = re.compile(
    r"^memcpy (?:CE|SM) (?P<row>[CG]PU)\(row\) (?P<arrow>->|<-|<->) (?P<column>GPU)"
)
_CANNOT = re.compile(r"Device=(\d+) CANNOT Access Peer Device=(\d+)")
_MAX_GPUS = 72


def read_bandwidth_matrices(text: str) -> list[LinkTable]:
    """Read every matrix whose rates have a model; the diagonals are copies inside one GPU."""
    names = tuple(match["name"].strip() for match in _DEVICE.finditer(text))
    tool = "p2pBandwidthLatencyTest" if "P2P=" in text else "nvbandwidth"
    denied = {(int(a), int(b)) for a, b in _CANNOT.findall(text)}
    lines = text.splitlines()
    tables = []
    for number, line in enumerate(lines):
        title = line.strip()
        rows = list(_read_matrix(lines, number + 1))
        if p2p := _P2P_TITLE.match(title):
            direction: Direction = "one-way" if p2p["way"] == "Uni" else "both-ways"
            enabled = p2p["peer"] == "Enabled"
            links = _read_pairs(rows, direction, enabled, denied)
            ways = "one way" if direction == "one-way" else "both ways"
            name = f"GPU to GPU, {ways}, peer access {'on' if enabled else 'off'}"
        elif (copies := _NV_TITLE.match(title)) and copies["arrow"] != "<->":
            if copies["row"] == "CPU":
                to_gpu = copies["arrow"] == "->"
                links = _read_host_copies(rows, to_gpu=to_gpu)
                name = "host to GPU" if to_gpu else "GPU to host"
            else:
                links = _read_pairs(rows, "one-way", True, denied)
                name = "GPU to GPU, one way"
        else:
            continue
        if links:
            tables.append(LinkTable(tool, name, names, tuple(links)))
    return tables


def _read_matrix(lines: list[str], start: int) -> Iterator[tuple[int, list[float | None]]]:
    """Yield the number and the cells of each row below a heading of column numbers."""
    if start >= len(lines) or not re.match(r"\s*(?:D\\D)?\s*0\s", lines[start] + " "):
        return
    for line in lines[start + 1 : start + 1 + _MAX_GPUS]:
        words = line.split()
        if not words or not words[0].isdigit():
            return
        yield int(words[0]), [_parse_cell(word) for word in words[1 : 1 + _MAX_GPUS]]


def _parse_cell(word: str) -> float | None:
    try:
        return float(word) * 1e9
    except ValueError:  # N/A
        return None


def _read_pairs(
    rows: list[tuple[int, list[float | None]]],
    direction: Direction,
    peer: bool,
    denied: set[tuple[int, int]],
) -> list[LinkReading]:
    return [
        LinkReading("gpu-gpu", f"GPU{a}", f"GPU{b}", direction, rate, peer and (a, b) not in denied)
        for a, cells in rows
        for b, rate in enumerate(cells)
        if a != b and rate
    ]


def _read_host_copies(
    rows: list[tuple[int, list[float | None]]], *, to_gpu: bool
) -> list[LinkReading]:
    ends = [("host", f"GPU{gpu}", rate) for _, cells in rows for gpu, rate in enumerate(cells)]
    return [
        LinkReading("host-gpu", *((host, gpu) if to_gpu else (gpu, host)), "one-way", rate)
        for host, gpu, rate in ends
        if rate
    ]
