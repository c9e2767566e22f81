"""The network between machines as one pipe: what all ports of a machine carry together."""

from dataclasses import dataclass

from gpuyard.catalog import Link, links
from gpuyard.errors import UserMistake
from gpuyard.predict.constants import Basis, Constant
from gpuyard.specs import Network, Protocol

# what of a wire's rate arrives as payload where the catalog has no figure
_PAYLOAD_SHARE: dict[Protocol, Constant] = {
    "tcp": Constant(
        "payload_share", 0.94, "of the wire's rate", "published",
        "Ethernet frames of 1,500 bytes with TCP/IP headers carry 1,448 of 1,538 bytes",
    ),
    "rdma": Constant(
        "payload_share", 0.97, "of the wire's rate", "assumed", "packets of 4 KiB lose about 3 %"
    ),
}  # fmt: skip
_LATENCY: dict[Protocol, Constant] = {
    "tcp": Constant("hop_latency", 30e-6, "seconds", "assumed", "through two kernels"),
    "rdma": Constant("hop_latency", 5e-6, "seconds", "assumed", "past the kernels"),
}


@dataclass(frozen=True)
class Pipe:
    """A way for bytes: its rate and the latency of one hop."""

    bytes_per_second: float
    latency_seconds: float
    name: str


def between_machines(network: Network) -> tuple[Pipe, tuple[Constant, ...]]:
    """The pipe out of one machine, and the constants behind it."""
    link = _link(network)
    protocol: Protocol = network.protocol or ("rdma" if link and link.protocol == "rdma" else "tcp")
    used: list[Constant] = []
    basis: Basis = "given"
    if link is not None and link.protocol == protocol:
        port, latency, basis = link.effective_bytes_per_second, link.latency_seconds, "catalog"
    else:
        wire = link.raw_bytes_per_second if link is not None else network.rate or 0.0
        port, latency = wire * _PAYLOAD_SHARE[protocol].value, _LATENCY[protocol].value
        used.append(_PAYLOAD_SHARE[protocol])
        if network.latency is None:
            used.append(_LATENCY[protocol])
    rate = port * network.rails / network.oversubscription
    if network.per_flow is not None and protocol == "tcp":
        rate = min(rate, network.per_flow * network.flows)
    name = link.name if link is not None else f"{(network.rate or 0.0) * 8 / 1e9:g} Gbit/s"
    rails = f"{network.rails} × " if network.rails > 1 else ""
    pipe = Pipe(
        rate, latency if network.latency is None else network.latency, f"{rails}{name} ({protocol})"
    )
    return pipe, (Constant("link_between", rate, "bytes/s", basis, pipe.name), *used)


def _link(network: Network) -> Link | None:
    if network.link is None:
        return None
    link = links().get(network.link)
    if link.kind not in ("ethernet", "infiniband"):
        raise UserMistake(f"{network.link} joins GPUs inside a machine, not machines")
    return link
