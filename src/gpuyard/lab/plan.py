"""The plan of a lab as a value: nodes with addresses, rates, and cores; racks; dilation."""

import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from gpuyard import units
from gpuyard.cpu import usable_cores
from gpuyard.errors import BadQuantity, UserMistake, describe_unknown

DEFAULT_NAME = "lab"
MAX_NODES = 250  # one /24, and more than one machine can emulate usefully
INTERFACE = "eth0"
PREFIX_LENGTH = 24
# two cores held 7 Gbit/s summed over all nodes of a ring, and saturated above it
BYTES_PER_SECOND_PER_CORE = 3.5e9 / 8
_NETWORK = "10.77.0"  # the same in every lab: labs see neither each other nor the host's network
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_SHORT = re.compile(r"(\d{1,6})\s*[x×]\s*([^,]+)((?:,[^,]+)*)")
_MAX_SHORT_CHARACTERS = 200
_SHORT_KEYS = ("dilation", "latency", "racks", "uplink")
_FULL_FRAME_BYTES = 64 * 1024  # the largest packet of a veth; smaller buckets must split it
_BURST_SECONDS = 2e-3
_QUEUE_SECONDS = 64e-3
_MIN_RATE = 125_000 / 8  # 125 kbit/s: below it one frame takes a tenth of a second


@dataclass(frozen=True)
class LinkShape:
    """The token bucket that limits one direction of a link: its rate, burst, and queue length."""

    rate_bytes_per_second: float
    burst_bytes: int
    limit_bytes: int


def shape_of(rate_bytes_per_second: float) -> LinkShape:
    """Return a bucket with a burst of two milliseconds and a queue of 64 ms.

    At 1 Gbit/s these are 256 kB and 8 MB, which carried 955 Mbit/s of payload both ways.
    """
    return LinkShape(
        rate_bytes_per_second=rate_bytes_per_second,
        burst_bytes=max(_FULL_FRAME_BYTES, int(rate_bytes_per_second * _BURST_SECONDS)),
        limit_bytes=max(8 * _FULL_FRAME_BYTES, int(rate_bytes_per_second * _QUEUE_SECONDS)),
    )


@dataclass(frozen=True)
class NodePlan:
    """One node; its rate is the undilated rate of each direction."""

    name: str
    address: str
    rack: int
    rate_bytes_per_second: float
    cores: tuple[int, ...]


@dataclass(frozen=True)
class LabPlan:
    """Everything that `up` creates. Rates and latency are those of the emulated cluster."""

    name: str
    nodes: tuple[NodePlan, ...]
    racks: int = 1
    uplink_bytes_per_second: float | None = None
    dilation: float = 1.0
    latency_seconds: float = 0.0

    def shape(self, rate_bytes_per_second: float) -> LinkShape:
        """Return the dilated bucket for one direction of a link with this undilated rate."""
        return shape_of(rate_bytes_per_second / self.dilation)

    def describe(self) -> dict[str, Any]:
        """Return the plan as a document for `--dry-run` and programs."""
        document = asdict(self)
        for node, planned in zip(document["nodes"], self.nodes, strict=True):
            node["shaped_bytes_per_second"] = planned.rate_bytes_per_second / self.dilation
        return document


def is_name(name: str) -> bool:
    """Return whether a name is safe to use in paths and namespace names."""
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> None:
    if not is_name(name):
        raise UserMistake(
            f"{name!r} is not a valid lab name; use up to 32 of a-z, 0-9, and -, like {DEFAULT_NAME!r}"
        )


def plan_lab(
    nodes: int,
    link: str | float,
    *,
    name: str = DEFAULT_NAME,
    link_of: Mapping[int, str | float] | None = None,
    racks: int = 1,
    uplink: str | float | None = None,
    dilation: float = 1.0,
    latency: str | float = 0.0,
) -> LabPlan:
    """Check all settings and return the plan; nothing is created yet."""
    check_name(name)
    if not 1 <= nodes <= MAX_NODES:
        raise UserMistake(f"expected 1 to {MAX_NODES} nodes, got {nodes}")
    if not 1 <= racks <= nodes:
        raise UserMistake(f"expected 1 to {nodes} racks for {nodes} nodes, got {racks}")
    if racks == 1 and uplink is not None:
        raise UserMistake("an uplink joins racks: it needs --racks 2 or more")
    if not 1 <= dilation <= 1e4:
        raise UserMistake(f"expected a dilation of 1 to 10,000, got {dilation:g}")
    rates = [_parse_rate(link)] * nodes
    for index, node_link in (link_of or {}).items():
        if not 0 <= index < nodes:
            raise UserMistake(f"node {index} not found; nodes are 0 to {nodes - 1}")
        rates[index] = _parse_rate(node_link)
    return LabPlan(
        name=name,
        nodes=tuple(
            NodePlan(
                name=f"node{index}",
                address=f"{_NETWORK}.{index + 1}",
                rack=index * racks // nodes,
                rate_bytes_per_second=rate,
                cores=cores,
            )
            for index, (rate, cores) in enumerate(zip(rates, _assign_cores(nodes), strict=True))
        ),
        racks=racks,
        uplink_bytes_per_second=_parse_rate(uplink) if uplink is not None else None,
        dilation=float(dilation),
        latency_seconds=latency
        if isinstance(latency, float)
        else units.parse_short_duration(latency),
    )


def overload(plan: LabPlan) -> str | None:
    """Return a warning if all links together exceed what this machine's cores can carry."""
    cores = {core for node in plan.nodes for core in node.cores}
    total_rate = sum(node.rate_bytes_per_second for node in plan.nodes) / plan.dilation
    capacity = BYTES_PER_SECOND_PER_CORE * len(cores)
    if total_rate <= capacity:
        return None
    dilation = math.ceil(plan.dilation * total_rate / capacity)
    return (
        f"All links together would carry {units.format_bit_rate(total_rate)}, probably more than "
        f"{len(cores)} cores can: rates may not hold. Use --dilation {dilation}."
    )


def plan_from_text(text: str, name: str = DEFAULT_NAME) -> LabPlan | None:
    """Parse "8x1Gbit" or "8x10Gbit,dilation=10"; return None if the text is a lab's name instead."""
    match = _SHORT.fullmatch(text.strip()) if len(text) <= _MAX_SHORT_CHARACTERS else None
    if match is None:
        return None
    settings: dict[str, Any] = {}
    for setting in filter(None, match[3].split(",")):
        key, _, value = setting.partition("=")
        if key not in _SHORT_KEYS:
            raise UserMistake(f"{text!r}: {describe_unknown('setting', key, _SHORT_KEYS)}")
        settings[key] = value if key in ("latency", "uplink") else _parse_number(text, key, value)
    return plan_lab(int(match[1]), match[2], name=name, **settings)


def _parse_number(text: str, key: str, value: str) -> float:
    try:
        return int(value) if key == "racks" else float(value)
    except ValueError:
        raise UserMistake(f"{text!r}: expected a number for {key}, got {value!r}") from None


def _parse_rate(rate: str | float) -> float:
    """Parse a link rate as vendors write it: `1Gbit` is 1 Gbit/s."""
    if isinstance(rate, str) and re.search(r"[a-zA-Z]bit$", rate.strip()):
        rate = f"{rate.strip()}/s"
    parsed = units.parse_rate(rate) if isinstance(rate, str) else float(rate)
    if parsed < _MIN_RATE:
        raise BadQuantity(f"{rate!r} is too slow for a link; use 125 kbit/s or more")
    return parsed


def _assign_cores(nodes: int) -> list[tuple[int, ...]]:
    """Give each node the same number of cores; with fewer cores than nodes, share them evenly."""
    cores = usable_cores()
    if nodes > len(cores):
        return [(cores[index % len(cores)],) for index in range(nodes)]
    count = len(cores) // nodes
    return [cores[index * count : (index + 1) * count] for index in range(nodes)]
