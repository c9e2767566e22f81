"""Judges the rate of a network port against its nominal rate."""

from collections.abc import Iterator

from gpuyard.catalog import links as catalog_links
from gpuyard.measure.links.compare import SLOW_BELOW
from gpuyard.measure.record import Cause
from gpuyard.measure.tool_output.judgment import Judgment, ReadingVerdict
from gpuyard.measure.tool_output.readings import LinkReading, LinkTable
from gpuyard.predictor.platform import find_network
from gpuyard.specs import Cluster
from gpuyard.units import format_bit_rate

_RDMA_SHARE = 0.9  # of the wire rate that a healthy port reaches with large messages


def judge_port(
    table: LinkTable, link: LinkReading, cluster: Cluster | None, nominal: float | None
) -> Judgment:
    """Judge a port by the rate that the user or the cluster gives; without one, say which port it could be."""
    basis = "the rate given with --link"
    if nominal is None and cluster is not None and (network := find_network(cluster)) is not None:
        nominal = network.rate or catalog_links().get(network.link or "").raw_bytes_per_second
        basis = f"one port of {cluster.name}"
    both = 2 if link.direction == "both-ways" else 1
    rate = link.bytes_per_second / both
    if nominal is None and table.tool == "OSU":  # its ranks may be on one machine
        reason = (
            "its two ranks may be on one machine or on two: name it with --on, e.g. --on 8xh100"
        )
        ends = f"{link.source} to {link.target}"
        return Judgment(table.title, ends, "not judged", rate, reason=reason)
    if nominal is None:
        nominal = _find_standard_rate(rate)
        if rate >= SLOW_BELOW * nominal:
            reason = (
                f"it would be a healthy port of {format_bit_rate(nominal)}; name yours with --link"
            )
            return Judgment(table.title, link.source, "not judged", rate, reason=reason)
        basis = f"the next standard rate, {format_bit_rate(nominal)}; name yours with --link"
    expected = _RDMA_SHARE * nominal
    causes: tuple[Cause, ...] = ()
    if rate < SLOW_BELOW * nominal:
        causes = tuple(_explain_port(rate, nominal))
    verdict: ReadingVerdict = "slow" if causes else "fast" if rate > nominal else "normal"
    return Judgment(
        table.title,
        link.source,
        verdict,
        rate,
        expected,
        SLOW_BELOW * nominal,
        nominal,
        basis,
        causes,
    )


def _find_standard_rate(rate: float) -> float:
    standard = sorted(
        {
            link.raw_bytes_per_second
            for link in catalog_links()
            if link.kind in ("ethernet", "infiniband")
        }
    )
    return next((nominal for nominal in standard if nominal >= rate), rate)


def _explain_port(rate: float, nominal: float) -> Iterator[Cause]:
    slower = _find_standard_rate(rate)
    if slower < nominal and rate > SLOW_BELOW * slower:
        yield Cause(
            name="slower-link",
            why=f"it is as fast as a healthy link of {format_bit_rate(slower)}",
            next_step="check the negotiated rate and width with ibstat or ethtool, and the cable",
        )
    yield Cause(
        name="slot",
        why="the card's PCIe slot may have too few lanes, or its memory lies on the other socket",
        next_step="check LnkSta with lspci -vv, and pin the test: numactl --cpunodebind with the card's NUMA node",
    )
    yield Cause(
        name="congestion",
        why="other traffic, or lost packets, may slow the link",
        next_step="repeat it back to back, and compare perfquery or ethtool -S before and after (RoCE: PFC and ECN)",
    )
