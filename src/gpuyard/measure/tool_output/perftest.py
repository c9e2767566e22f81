"""Reads the bandwidth tables of perftest: `ib_write_bw`, `ib_read_bw`, and `ib_send_bw`."""

import re

from gpuyard.measure.tool_output.readings import LinkReading, LinkTable

SIGNATURE = re.compile(r"#bytes\s+#iterations\s+BW peak\[")
_TITLE = re.compile(r"^[ \t]*(?P<name>(?:RDMA_)?(?:Write|Read|Send).*BW Test)[ \t]*$", re.MULTILINE)
_HEAD = re.compile(r"BW average\[(?P<unit>MB/sec|MiB/sec|Gb/sec)\]")
_DEVICE = re.compile(r"Device\s*:\s*(\S+)")
# perftest's MB is 2^20 bytes, as its sources define it
_UNITS = {"MB/sec": float(1 << 20), "MiB/sec": float(1 << 20), "Gb/sec": 1e9 / 8}
_MIN_BYTES = 1 << 16


def read_perftest(text: str) -> list[LinkTable]:
    """Read the best average rate of large messages of each run."""
    tables = []
    for part in re.split(r"(?=^.*BW Test[ \t]*$)", text, flags=re.MULTILINE):
        head = _HEAD.search(part)
        if head is None:
            continue
        rates = [
            float(row[2]) * _UNITS[head["unit"]]
            for row in re.finditer(
                r"^[ \t]*(\d+)[ \t]+\d+[ \t]+[\d.]+[ \t]+([\d.]+)\s",
                part[head.end() :],
                re.MULTILINE,
            )
            if int(row[1]) >= _MIN_BYTES
        ]
        title = _TITLE.search(part)
        name = title["name"] if title else "RDMA BW Test"
        device = _DEVICE.search(part)
        both = "Bidirectional" in name
        link = LinkReading(
            "network",
            device[1] if device else "this host",
            "the other host",
            "both-ways" if both else "one-way",
            max(rates, default=0.0),
        )
        tables.append(LinkTable("perftest", name, (), (link,) if rates else ()))
    return tables
