"""Parse the two tables of `nvidia-smi topo`.

`-m` shows the path class of every two devices and their CPU affinity; `-p2p` shows which GPUs have peer access.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from gpuyard.errors import quote
from gpuyard.hardware.readers.matrix_text import (
    LINK_CLASSES,
    PEER_STATUSES,
    MatrixText,
    Word,
    create_error,
    find_matrix,
    strip_colors,
)

_COLUMNS = {
    "CPU Affinity": re.compile(r"CPU\s+Affinity"),
    "NUMA Affinity": re.compile(r"(?<!GPU\s)NUMA\s+Affinity"),
    "GPU NUMA ID": re.compile(r"GPU\s+NUMA\s+ID"),
}
_NUMBER_LIST = re.compile(r"\d+(-\d+)?(,\d+(-\d+)?)*")
_MAX_LIST_LENGTH = 4000  # characters: one number for each of a thousand cores
_NIC_NAME = re.compile(r"\s*(NIC\d+)\s*:\s*(\S+)\s*")


@dataclass(frozen=True)
class TopoMatrix:
    """The matrix as it was printed, e.g. with "SOC" for "SYS". Mappings leave out empty cells."""

    source: str
    devices: tuple[str, ...]
    classes: Mapping[tuple[str, str], str]
    cpu_affinity: Mapping[str, str] = field(default_factory=dict)
    numa_affinity: Mapping[str, str] = field(default_factory=dict)
    gpu_numa_id: Mapping[str, str] = field(default_factory=dict)
    nic_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[str, ...]:
        return tuple(device for device in self.devices if is_gpu(device))

    @property
    def nics(self) -> tuple[str, ...]:
        return tuple(device for device in self.devices if not is_gpu(device))


@dataclass(frozen=True)
class PeerMatrix:
    """The peer status of every two GPUs, as it was printed: OK, or the reason why there is no access."""

    source: str
    gpus: tuple[str, ...]
    statuses: Mapping[tuple[str, str], str]

    @property
    def peers(self) -> frozenset[frozenset[str]]:
        """The pairs with access in both directions, for `MachineGraph.pcie_peers`."""
        return frozenset(
            frozenset((a, b))
            for (a, b), status in self.statuses.items()
            if status == self.statuses[b, a] == "OK"
        )


def is_gpu(device: str) -> bool:
    """Return whether a device of the header is a GPU; all others are NICs."""
    return re.fullmatch(r"GPU\d+", device) is not None


def parse_topo_matrix(text: str, source: str) -> TopoMatrix:
    """Parse the first matrix in the text; `source` is the file name in error messages."""
    table = find_matrix(text, source, LINK_CLASSES, "nvidia-smi topo -m")
    cells = table.read(LINK_CLASSES)
    _check_symmetry(source, cells)
    lines = strip_colors(text)
    affinities: dict[str, dict[str, str]] = {column: {} for column in _COLUMNS}
    for name, *words in table.rows:
        last = words[len(table.devices) - 1]
        rest = lines[name.line - 1][last.column - 1 + len(last.text) :]
        for column, value in _parse_affinities(table, rest, last).items():
            affinities[column][name.text] = value
    return TopoMatrix(
        source,
        tuple(device.text for device in table.devices),
        {pair: word.text for pair, word in cells.items()},
        cpu_affinity=affinities["CPU Affinity"],
        numa_affinity=affinities["NUMA Affinity"],
        gpu_numa_id=affinities["GPU NUMA ID"],
        nic_names={m[1]: m[2] for line in lines if (m := _NIC_NAME.fullmatch(line))},
    )


def parse_p2p_matrix(text: str, source: str) -> PeerMatrix:
    """Parse the first peer matrix in the text; `source` is the file name in error messages."""
    table = find_matrix(text, source, PEER_STATUSES, "nvidia-smi topo -p2p r")
    cells = table.read(PEER_STATUSES)
    return PeerMatrix(
        source,
        tuple(device.text for device in table.devices),
        {pair: word.text for pair, word in cells.items()},
    )


def _check_symmetry(source: str, cells: dict[tuple[str, str], Word]) -> None:
    for (a, b), word in cells.items():
        mirrored = cells[b, a]
        if word.text != mirrored.text and word.line > mirrored.line:
            raise create_error(
                source,
                word,
                f"{a} to {b} is {word.text!r} here, but {b} to {a} is {mirrored.text!r} in line "
                f"{mirrored.line}; the matrix must be symmetric",
            )


def _parse_affinities(table: MatrixText, rest: str, last: Word) -> dict[str, str]:
    """Return the values after the cells of a row, by column."""
    columns = sorted(
        (m.start(), name)
        for name, pattern in _COLUMNS.items()
        if (m := pattern.search(table.header.text))
    )
    start = last.column + len(last.text)
    words = [Word(m[0], last.line, start + m.start()) for m in re.finditer(r"\S+", rest)]
    if len(words) >= len(columns):
        pairs = zip((name for _, name in columns), words, strict=False)
    else:
        pairs = _match_columns(table, columns, rest, words, last)
    return {
        name: _check_number_list(table.source, name, word)
        for name, word in pairs
        if word.text != "N/A"
    }


def _match_columns(
    table: MatrixText, columns: list[tuple[int, str]], rest: str, words: list[Word], last: Word
) -> "zip[tuple[str, Word]]":
    """Match fewer values than columns: by the tabs before each value, or by its position under the header."""
    names = [name for _, name in columns]
    if "\t" in rest:
        prefixes = [rest[: word.column - last.column - len(last.text)] for word in words]
        # the second tab before the last column only makes room for the wide "NUMA Affinity"
        matched = [names[min(max(text.count("\t") - 1, 0), len(names) - 1)] for text in prefixes]
    else:
        matched = [min(columns, key=lambda c: abs(c[0] + 1 - word.column))[1] for word in words]
    if len(set(matched)) < len(matched):
        raise create_error(
            table.source,
            words[0],
            f"expected {len(names)} values ({', '.join(names)}), got {len(words)}, and cannot tell which is missing",
        )
    return zip(matched, words, strict=True)


def _check_number_list(source: str, column: str, word: Word) -> str:
    if len(word.text) > _MAX_LIST_LENGTH or not _NUMBER_LIST.fullmatch(word.text):
        raise create_error(
            source,
            word,
            f"expected a list of numbers like 0-7,16-23 for {column}, got {quote(word.text)}",
        )
    return word.text
