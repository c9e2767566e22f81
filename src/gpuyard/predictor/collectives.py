"""Times of collectives; every formula accepts numbers or NumPy arrays.

k members, N bytes, B bytes per second of the slowest link on the ring, latency α per hop.
Ring all-reduce: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations" (2009).
"""

import numpy as np
import numpy.typing as npt

Number = float | npt.NDArray[np.float64]


def pipelined_broadcast_seconds(
    members: Number, size_bytes: Number, bytes_per_second: Number, messages: Number
) -> Number:
    """Return the time of a ring that forwards a message in S pieces: N·(S+k−2)/(S·B).

    It is (k−1)·N/B for one piece and approaches N/B as S grows.
    """
    return size_bytes * (messages + members - 2) / (messages * bytes_per_second)


def ring_all_reduce_seconds(
    members: Number, size_bytes: Number, bytes_per_second: Number, latency_seconds: Number = 0.0
) -> Number:
    """Return the time of a reduce-scatter and an all-gather: 2(k−1)·α + 2·(k−1)/k·N/B."""
    return (
        2 * (members - 1) * latency_seconds
        + 2 * (members - 1) / members * size_bytes / bytes_per_second
    )


def hierarchical_all_reduce_seconds(
    gpus_per_node: Number,
    nodes: Number,
    size_bytes: Number,
    *,
    intra_bytes_per_second: Number,
    intra_latency_seconds: Number,
    inter_bytes_per_second: Number,
    inter_latency_seconds: Number,
) -> Number:
    """Return the time inside the machine, between machines with one ring per rail, and inside again.

    After the reduce-scatter inside, every GPU holds N/g. The g rings between the machines run at once and share the
    machine's ports, so the machine sends N·2(n−1)/n in total.
    """
    inside = ring_all_reduce_seconds(
        gpus_per_node, size_bytes, intra_bytes_per_second, intra_latency_seconds
    )
    between = ring_all_reduce_seconds(
        nodes, size_bytes, inter_bytes_per_second, inter_latency_seconds
    )
    return inside + between


def parameter_server_seconds(
    workers: Number, nodes: Number, size_bytes: Number, bytes_per_second: Number
) -> Number:
    """Return the time with one server per node and the parameters split among them.

    Each server receives and sends k·N/n. Traffic between a worker and the server on its node stays off the network.
    """
    remote_share = (nodes - 1) / nodes
    return 2 * workers * size_bytes / nodes * remote_share / bytes_per_second


def ring_half_seconds(members: Number, size_bytes: Number, bytes_per_second: Number) -> Number:
    """Return the time of a ring's reduce-scatter or all-gather of N bytes: (k−1)/k·N/B, half an all-reduce."""
    return (members - 1) / members * size_bytes / bytes_per_second


def binomial_depth(members: int) -> int:
    """Return ⌈log₂k⌉, the number of times that the members with the message double."""
    return max(0, members - 1).bit_length()


def binomial_broadcast_seconds(members: int, size_bytes: float, bytes_per_second: float) -> float:
    """Return the time of a binomial tree whose members send to all their children at once, as in gloo.

    Member v, which got the message in round j, sends it to v + 2^i for every later round i. The copies share its link,
    so n copies arrive after n·N/B: in total d·(d+1)/2 for k = 2^d.
    """
    depth = binomial_depth(members)
    arrived = {0: 0}
    for member in range(members):
        first_round = member.bit_length()
        children = [member + 2**i for i in range(first_round, depth) if member + 2**i < members]
        for child in children:
            arrived[child] = arrived[member] + len(children)
    return max(arrived.values()) * size_bytes / bytes_per_second
