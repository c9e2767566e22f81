"""Measured against expected: which links are slow, why they may be, and what to do next. Pure."""

from collections.abc import Iterator, Sequence

from gpuyard.hardware.graph import MachineGraph
from gpuyard.measure.links.expected import expected_bytes_per_second, over_nvlink, peers_of
from gpuyard.measure.links.records import (
    ComparedLink,
    GpuSlot,
    HostFacts,
    LinkMeasurement,
    SlowLink,
)
from gpuyard.measure.record import Cause

SLOW_BELOW = 0.75
# sound machines differ twofold in staged copies: of the slowest one that is published, not of the median
STAGED_SLOW_BELOW = 0.44
_WIDE_SPREAD = 0.25
_BUSY_SHARE = 0.25


def compare(
    graph: MachineGraph | None, measurements: Sequence[LinkMeasurement]
) -> tuple[ComparedLink, ...]:
    """Each measurement beside the model's rate."""
    return tuple(_compared(graph, measured) for measured in measurements)


def find_slow_links(
    graph: MachineGraph | None, links: Sequence[ComparedLink], facts: HostFacts
) -> tuple[SlowLink, ...]:
    """Every link far below the model, then every pair that should have peer access."""
    if graph is None:
        return ()
    slow = [
        _slow_link(
            link.measured,
            link.expected_bytes_per_second,
            tuple(likely_causes(graph, link.measured, facts)),
        )
        for link in links
        if link.verdict == "slow" and link.expected_bytes_per_second
    ]
    return (*slow, *_without_peer_access(graph, [link.measured for link in links], facts))


def likely_causes(
    graph: MachineGraph, measured: LinkMeasurement, facts: HostFacts
) -> Iterator[Cause]:
    """What the host's facts hold against this link, the likeliest first; never nothing."""
    found = False
    for cause in _suspects(graph, measured, facts):
        found = True
        yield cause
    if not found:
        yield Cause(
            name="unknown",
            why="nothing that was read from this host explains it",
            next_step="measure again with more --bytes and --repeats, and compare with nvbandwidth",
        )


def _compared(graph: MachineGraph | None, measured: LinkMeasurement) -> ComparedLink:
    expected = expected_bytes_per_second(graph, measured) if graph else None
    if not expected:
        return ComparedLink(
            measured=measured, expected_bytes_per_second=None, ratio=None, verdict="no model"
        )
    ratio = measured.bytes_per_second / expected
    return ComparedLink(
        measured=measured,
        expected_bytes_per_second=expected,
        ratio=ratio,
        verdict="slow" if ratio < _slow_below(measured) else "as expected",
    )


def _slow_below(measured: LinkMeasurement) -> float:
    return STAGED_SLOW_BELOW if measured.peer is False else SLOW_BELOW


def _slow_link(measured: LinkMeasurement, expected: float, causes: tuple[Cause, ...]) -> SlowLink:
    return SlowLink(
        source=measured.source,
        target=measured.target,
        direction=measured.direction,
        peer=measured.peer,
        measured_bytes_per_second=measured.bytes_per_second,
        expected_bytes_per_second=expected,
        ratio=measured.bytes_per_second / expected,
        causes=causes,
    )


def _without_peer_access(
    graph: MachineGraph, measurements: Sequence[LinkMeasurement], facts: HostFacts
) -> Iterator[SlowLink]:
    """Pairs that the model gives peer access and CUDA does not; judged against what they would have."""
    reached = {frozenset((m.source, m.target)) for m in measurements if m.peer}
    for measured in measurements:
        pair = frozenset((measured.source, measured.target))
        if measured.peer is not False or pair in reached or pair not in peers_of(graph):
            continue
        with_peer = expected_bytes_per_second(graph, measured.model_copy(update={"peer": True}))
        if with_peer and measured.bytes_per_second / with_peer < SLOW_BELOW:
            off = Cause(
                name="no-peer-access",
                why=f"CUDA offers no peer access between {measured.source} and {measured.target}",
                next_step="see why with: nvidia-smi topo -p2p r; the driver, an IOMMU or a virtual "
                "machine can take it away",
            )
            yield _slow_link(measured, with_peer, (off, *_blocking_peers(facts), *_virtual(facts)))


def _suspects(graph: MachineGraph, measured: LinkMeasurement, facts: HostFacts) -> Iterator[Cause]:
    if over_nvlink(graph, measured):
        yield Cause(
            name="nvlink",
            why="this traffic takes NVLink, and some of its links may be down",
            next_step="look at: nvidia-smi nvlink --status, and nvidia-smi nvlink -e for errors",
        )
    else:
        for slot in facts.slots:
            if slot.gpu in (measured.source, measured.target):
                yield from _slot_causes(slot)
        if measured.peer:
            yield from _blocking_peers(facts)
    yield from _virtual(facts)
    yield from _other_load(measured, facts)


def _slot_causes(slot: GpuSlot) -> Iterator[Cause]:
    if slot.width and slot.most_width and slot.width < slot.most_width:
        port = slot.port_most_width
        board = f"; the slot has {port}" if port and port < slot.most_width else ""
        yield Cause(
            name="narrow-slot",
            why=f"{slot.gpu} ({slot.address}) runs on {slot.width} of its {slot.most_width} lanes{board}",
            next_step="move it to a x16 slot that shares its lanes with nothing"
            if board
            else "reseat the card, its riser and its cable, and look for bifurcation in the BIOS",
        )
    if not slot.speed or not slot.most_speed:
        return
    reachable = min(slot.most_speed, slot.port_most_speed or slot.most_speed)
    if slot.speed < reachable:
        yield Cause(
            name="power-saving",
            why=f"{slot.gpu} ({slot.address}) ran at {slot.speed:g} of {reachable:g} GT/s a lane",
            next_step="an idle GPU slows its link: measure under load with more --bytes and --repeats; "
            "if it stays, look for the slot's generation in the BIOS and for a poor riser",
        )
    elif reachable < slot.most_speed:
        yield Cause(
            name="old-slot",
            why=f"{slot.gpu} ({slot.address}) can do {slot.most_speed:g} GT/s a lane, its slot {reachable:g}",
            next_step="the board's PCIe is a generation older than the card: only another slot or "
            "board helps",
        )


def _blocking_peers(facts: HostFacts) -> Iterator[Cause]:
    if facts.acs_bridges:
        yield Cause(
            name="acs",
            why=f"ACS is on at {', '.join(facts.acs_bridges)}: traffic between GPUs goes up to the CPU",
            next_step="without virtual machines on this host, turn ACS off in the BIOS, or with: "
            f"setpci -s {facts.acs_bridges[0]} ECAP_ACS+6.w=0000",
        )
    if facts.iommu == "translating":
        yield Cause(
            name="iommu",
            why="the IOMMU translates every address that a GPU uses",
            next_step="boot with iommu=pt, or turn VT-d or AMD-Vi off in the BIOS if nothing needs it",
        )


def _virtual(facts: HostFacts) -> Iterator[Cause]:
    if facts.virtual_machine:
        yield Cause(
            name="virtual-machine",
            why=f"this is a virtual machine ({facts.virtual_machine}): it sees neither the real "
            "slots nor who shares them",
            next_step="measure on the host, or take an instance whose provider passes the topology on",
        )


def _other_load(measured: LinkMeasurement, facts: HostFacts) -> Iterator[Cause]:
    signs = []
    if facts.busy_share is not None and facts.busy_share > _BUSY_SHARE:
        signs.append(
            f"{100 * facts.busy_share:.0f} % of the cores were busy before the bench began"
        )
    if measured.spread > _WIDE_SPREAD:
        signs.append(f"the repeats differ by {100 * measured.spread:.0f} %")
    if signs:
        yield Cause(
            name="other-load",
            why=f"something else may use this machine: {' and '.join(signs)}",
            next_step="look at top and nvidia-smi, and measure again when it is alone",
        )
