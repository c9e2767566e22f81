"""Compares measured with expected rates: finds slow links, their likely causes, and what to do next."""

from collections.abc import Iterator, Sequence

from gpuyard.hardware.graph import MachineGraph
from gpuyard.measure.links.expected import expected_bytes_per_second, find_peer_pairs, uses_nvlink
from gpuyard.measure.links.records import (
    ComparedLink,
    GpuSlot,
    HostFacts,
    LinkMeasurement,
    SlowLink,
)
from gpuyard.measure.record import Cause

SLOW_BELOW = 0.75
# intact machines differ by a factor of two in staged copies, so this is relative to the slowest published one
STAGED_SLOW_BELOW = 0.41
_WIDE_SPREAD = 0.25
_BUSY_SHARE = 0.25


def compare(
    graph: MachineGraph | None, measurements: Sequence[LinkMeasurement]
) -> tuple[ComparedLink, ...]:
    """Compare each measurement with the model's rate."""
    return tuple(_compare_link(graph, measured) for measured in measurements)


def find_slow_links(
    graph: MachineGraph | None, links: Sequence[ComparedLink], facts: HostFacts
) -> tuple[SlowLink, ...]:
    """Find links far below the model, then GPU pairs that lack the peer access they should have."""
    if graph is None:
        return ()
    slow = [
        _build_slow_link(
            link.measured,
            link.expected_bytes_per_second,
            find_likely_causes(graph, link.measured, facts),
        )
        for link in links
        if link.verdict == "slow" and link.expected_bytes_per_second
    ]
    return (*slow, *_find_missing_peer_access(graph, [link.measured for link in links], facts))


def find_likely_causes(
    graph: MachineGraph, measured: LinkMeasurement, facts: HostFacts
) -> tuple[Cause, ...]:
    """Find why a link may be slow, the likeliest cause first; there is always at least one."""
    unknown = Cause(
        name="unknown",
        why="no known setting of this host explains it",
        next_step="measure again with more --bytes and --repeats, and compare with nvbandwidth",
    )
    return tuple(_list_causes(graph, measured, facts)) or (unknown,)


def _compare_link(graph: MachineGraph | None, measured: LinkMeasurement) -> ComparedLink:
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
        verdict="slow"
        if ratio < (STAGED_SLOW_BELOW if measured.peer is False else SLOW_BELOW)
        else "as expected",
    )


def _build_slow_link(
    measured: LinkMeasurement, expected: float, causes: tuple[Cause, ...]
) -> SlowLink:
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


def _find_missing_peer_access(
    graph: MachineGraph, measurements: Sequence[LinkMeasurement], facts: HostFacts
) -> Iterator[SlowLink]:
    """Find pairs with peer access in the model but not in CUDA, and compare them with its rate."""
    pairs_with_access = {frozenset((m.source, m.target)) for m in measurements if m.peer}
    expected_pairs = find_peer_pairs(graph)
    for measured in measurements:
        pair = frozenset((measured.source, measured.target))
        if measured.peer is not False or pair in pairs_with_access or pair not in expected_pairs:
            continue
        peer_rate = expected_bytes_per_second(graph, measured.model_copy(update={"peer": True}))
        if peer_rate and measured.bytes_per_second / peer_rate < SLOW_BELOW:
            no_access = Cause(
                name="no-peer-access",
                why=f"CUDA offers no peer access between {measured.source} and {measured.target}",
                next_step="find the reason with: nvidia-smi topo -p2p r; the driver, an IOMMU, or a "
                "virtual machine can disable it",
            )
            causes = (no_access, *_find_peer_blockers(facts), *_find_virtual_machine(facts))
            yield _build_slow_link(measured, peer_rate, causes)


def _list_causes(
    graph: MachineGraph, measured: LinkMeasurement, facts: HostFacts
) -> Iterator[Cause]:
    if uses_nvlink(graph, measured):
        yield Cause(
            name="nvlink",
            why="this traffic uses NVLink, and some of its links may be down",
            next_step="check nvidia-smi nvlink --status, and nvidia-smi nvlink -e for errors",
        )
    else:
        for slot in facts.slots:
            if slot.gpu in (measured.source, measured.target):
                yield from find_slot_causes(slot)
        if measured.peer:
            yield from _find_peer_blockers(facts)
    yield from _find_virtual_machine(facts)
    yield from _find_other_load(measured, facts)


def find_slot_causes(slot: GpuSlot) -> Iterator[Cause]:
    if slot.width and slot.max_width and slot.width < slot.max_width:
        port = slot.port_max_width
        board = f"; the slot has {port}" if port and port < slot.max_width else ""
        yield Cause(
            name="narrow-slot",
            why=f"{slot.gpu} ({slot.address}) runs on {slot.width} of its {slot.max_width} lanes{board}",
            next_step="move it to an x16 slot that does not share its lanes"
            if board
            else "reseat the card, its riser, and its cable, and check bifurcation in the BIOS",
        )
    if not slot.speed or not slot.max_speed:
        return
    reachable = min(slot.max_speed, slot.port_max_speed or slot.max_speed)
    if slot.speed < reachable:
        yield Cause(
            name="power-saving",
            why=f"{slot.gpu} ({slot.address}) ran at {slot.speed:g} of {reachable:g} GT/s per lane",
            next_step="an idle GPU slows its link: measure under load with more --bytes and --repeats; "
            "if it stays slow, check the slot's PCIe generation in the BIOS and the riser",
        )
    elif reachable < slot.max_speed:
        yield Cause(
            name="old-slot",
            why=f"{slot.gpu} ({slot.address}) supports {slot.max_speed:g} GT/s per lane, its slot "
            f"{reachable:g}",
            next_step="the slot's PCIe generation is older than the card's: use another slot or board",
        )


def _find_peer_blockers(facts: HostFacts) -> Iterator[Cause]:
    if facts.acs_bridges:
        yield Cause(
            name="acs",
            why=f"ACS is on at {', '.join(facts.acs_bridges)}: traffic between GPUs goes up to the CPU",
            next_step="if this host has no virtual machines, turn ACS off in the BIOS, or with: "
            f"setpci -s {facts.acs_bridges[0]} ECAP_ACS+6.w=0000",
        )
    if facts.iommu == "translating":
        yield Cause(
            name="iommu",
            why="the IOMMU translates every address that a GPU uses",
            next_step="boot with iommu=pt, or turn VT-d or AMD-Vi off in the BIOS if nothing needs it",
        )


def _find_virtual_machine(facts: HostFacts) -> Iterator[Cause]:
    if facts.virtual_machine:
        yield Cause(
            name="virtual-machine",
            why=f"this is a virtual machine ({facts.virtual_machine}), which hides the real slots "
            "and who shares them",
            next_step="measure on the host, or use an instance type that exposes its topology",
        )


def _find_other_load(measured: LinkMeasurement, facts: HostFacts) -> Iterator[Cause]:
    signs = []
    if facts.busy_share is not None and facts.busy_share > _BUSY_SHARE:
        signs.append(f"{100 * facts.busy_share:.0f}% of the cores were busy before the bench began")
    if measured.spread > _WIDE_SPREAD:
        signs.append(f"the repeats differ by {100 * measured.spread:.0f}%")
    if signs:
        yield Cause(
            name="other-load",
            why=f"other programs may use this machine: {' and '.join(signs)}",
            next_step="check top and nvidia-smi, and measure again when nothing else runs",
        )
