"""Find the slow link of a training: from the TCP rates of its ranks, and from the speeds of their network cards.

In a ring, all ranks wait for the slowest link, so their times don't differ. The rates at which they send do.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from gpuyard.reporting.ranks import RankWindow
from gpuyard.units import format_bit_rate, format_share

_MAX_RATIO = 0.65  # of the other links' rate; a link above it is not slow
_MIN_LINKS = 3  # a ring of two machines has nothing to compare with
_SEGMENT_BYTES = 1448  # of TCP over Ethernet
_MANY_RETRANSMITS = 0.01


@dataclass(frozen=True)
class LinkRate:
    """The best rate from one machine to another in the newest windows, and the share of packets sent again."""

    sender: str
    receiver: str
    bytes_per_second: float
    retransmitted: float


@dataclass(frozen=True)
class SlowLink:
    """A link, its share of the other links' rate, and a clause that names it."""

    ratio: float
    clause: str
    hosts: tuple[str, ...]


def measure_links(windows: Sequence[RankWindow], recent: int) -> list[LinkRate]:
    """Return the rates between the machines of ranks; the best window counts, because a busy CPU also slows sending."""
    names = _name_machines(windows)
    by_pair: dict[tuple[str, str], list[tuple[float, int, int]]] = {}
    for window in windows:
        for link in window.links:
            if link.sender in names and link.receiver in names:
                pair = names[link.sender], names[link.receiver]
                rate = link.sent_bytes / link.seconds
                by_pair.setdefault(pair, []).append((rate, link.sent_bytes, link.retransmits))
    rates = []
    for (sender, receiver), own in by_pair.items():
        newest = own[-recent:]
        segments = sum(sent for _, sent, _ in newest) / _SEGMENT_BYTES
        again = sum(retransmits for _, _, retransmits in newest) / segments
        rates.append(LinkRate(sender, receiver, max(rate for rate, _, _ in newest), again))
    return rates


def find_slow_link(windows: Sequence[RankWindow], recent: int) -> SlowLink | None:
    """Name the machine all of whose links are slow, or a pair of machines; None if all links are alike."""
    return _find_slow_rate(measure_links(windows, recent)) or _find_slow_card(windows)


def _find_slow_rate(links: Sequence[LinkRate]) -> SlowLink | None:
    if len(links) < _MIN_LINKS:
        return None
    suspects = []
    for host in sorted({name for link in links for name in (link.sender, link.receiver)}):
        own = [link for link in links if host in (link.sender, link.receiver)]
        rest = [link for link in links if link not in own]
        if len(own) > 1 and rest:
            # all its links must be slow; otherwise a pair of machines is
            suspects.append((max(_rate(link) for link in own), host, own, rest))
    if suspects:
        rate, host, own, rest = min(suspects, key=lambda suspect: suspect[0])
        if (slow := _describe(f"the link of {host}", rate, own, rest, (host,))) is not None:
            return slow
    slowest = min(links, key=_rate)
    rest = [link for link in links if link is not slowest]
    subject = f"the link from {slowest.sender} to {slowest.receiver}"
    ends = slowest.sender, slowest.receiver
    return _describe(subject, slowest.bytes_per_second, [slowest], rest, ends)


def _rate(link: LinkRate) -> float:
    return link.bytes_per_second


def _describe(
    subject: str,
    rate: float,
    own: Sequence[LinkRate],
    rest: Sequence[LinkRate],
    hosts: tuple[str, ...],
) -> SlowLink | None:
    others = median(link.bytes_per_second for link in rest)
    if rate > _MAX_RATIO * others:
        return None
    clause = f"{subject} carries {format_bit_rate(rate)}, the others {format_bit_rate(others)}"
    again = max(link.retransmitted for link in own)
    if again > _MANY_RETRANSMITS:
        clause += f" ({format_share(again)} of its packets are sent again)"
    return SlowLink(rate / others, clause, hosts)


def _find_slow_card(windows: Sequence[RankWindow]) -> SlowLink | None:
    """Name a machine whose fastest network card is slower than those of the others, as RDMA has no TCP rates."""
    speeds = {
        _name_machine(window): max(window.cards.items(), key=lambda card: card[1])
        for window in windows
        if window.cards
    }
    if len(speeds) < _MIN_LINKS:
        return None
    host = min(sorted(speeds), key=lambda name: speeds[name][1])
    card, speed = speeds[host]
    others = median(rate for name, (_, rate) in speeds.items() if name != host)
    if speed > _MAX_RATIO * others:
        return None
    clause = (
        f"the network card {card} of {host} runs at {format_bit_rate(speed / 8)}, "
        f"those of the others at {format_bit_rate(others / 8)}"
    )
    return SlowLink(speed / others, clause, (host,))


def _name_machines(windows: Sequence[RankWindow]) -> dict[str, str]:
    """Return the name of each machine by the address from which its ranks send."""
    ranks: dict[str, set[int]] = {}
    hosts: dict[str, str] = {}
    for window in windows:
        for link in window.links:
            ranks.setdefault(link.sender, set()).add(window.rank)
            hosts[link.sender] = window.host
    return {
        address: f"{hosts[address] or address} ({_list_ranks(sorted(own))})"
        for address, own in ranks.items()
    }


def _name_machine(window: RankWindow) -> str:
    return window.host or f"rank {window.rank}"


def _list_ranks(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {ranks[0]} to {ranks[-1]}"
