"""Recognizes the tools whose output a file holds, and reads all of their tables."""

import re
import sys
from pathlib import Path

from gpuyard.errors import UserMistake
from gpuyard.files import read_text
from gpuyard.measure.tool_output import bandwidth_matrices, nccl_tests, osu, perftest, slots
from gpuyard.measure.tool_output.readings import DeviceHealth, LinkTable, ToolOutput

TOOLS = (
    "nccl-tests, rccl-tests, OSU micro-benchmarks, ib_write_bw, p2pBandwidthLatencyTest, nvbandwidth, "
    "lspci -vv, or nvidia-smi -q"
)
_PREFIX = re.compile(r"^\S+[: ] ?", re.MULTILINE)  # the time or the host that log collectors add
_QUOTE = re.compile(r"^(?:> ?)+")  # of a copied comment or mail
_MAX_BYTES = 20_000_000
_MAX_LINE_CHARACTERS = 1_000  # no tool prints a longer line


def read_tool_output(path: Path) -> ToolOutput:
    """Read a file with the output of one tool or several; `-` is standard input."""
    if str(path) == "-":
        text = sys.stdin.buffer.read(_MAX_BYTES).decode(errors="replace")
        return parse_tool_output(text, "standard input")
    return parse_tool_output(read_text(path, max_bytes=_MAX_BYTES), str(path))


def parse_tool_output(text: str, source: str) -> ToolOutput:
    """Parse the output of tools; `source` is its name in messages."""
    lines = (_QUOTE.sub("", line) for line in text.splitlines())
    text = "\n".join(line for line in lines if len(line) <= _MAX_LINE_CHARACTERS)
    for part in (text, _PREFIX.sub("", text)):
        output = _parse(part, source)
        if output.collectives or output.tables or output.devices or output.acs_bridges:
            return output
    raise UserMistake(f"{source}: no measurement found; expected the output of {TOOLS}")


def _parse(text: str, source: str) -> ToolOutput:
    collectives = nccl_tests.read_nccl_tests(text) if nccl_tests.SIGNATURE.search(text) else []
    tables: list[LinkTable] = []
    if osu.SIGNATURE.search(text):
        osu_collectives, tables = osu.read_osu(text)
        collectives += osu_collectives
    if perftest.SIGNATURE.search(text):
        tables += perftest.read_perftest(text)
    if bandwidth_matrices.SIGNATURE.search(text):
        tables += bandwidth_matrices.read_bandwidth_matrices(text)
    devices: list[DeviceHealth] = []
    bridges: list[str] = []
    if slots.LSPCI_SIGNATURE.search(text):
        devices, bridges = slots.read_lspci(text)
    if slots.SMI_SIGNATURE.search(text):
        devices += slots.read_smi_query(text)
    return ToolOutput(source, tuple(collectives), tuple(tables), tuple(devices), tuple(bridges))
