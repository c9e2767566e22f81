"""Create and remove the namespaces, bridges, and shaped links of a lab through netlink."""

import contextlib
import errno
import importlib.util
import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.lab.plan import INTERFACE, PREFIX_LENGTH, LabPlan, LinkShape
from gpuyard.termination import ENDING_SIGNALS

NAMESPACES = Path("/var/run/netns")
_LAB_NAMESPACE = re.compile(r"gpuyard-([a-z0-9-]+)-([0-9a-f]{6})-(fabric|node\d+)")
_CORE, _RACK = "core", "rack{}"
_STOP_SECONDS = 2.0
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21


def check_can_make_labs() -> None:
    """Raise MissingRequirement with the next step if this machine lacks something."""
    if sys.platform != "linux":
        raise MissingRequirement(
            "a lab needs Linux network namespaces; everything else in gpuyard works without them"
        )
    if not _has_rights():
        raise MissingRequirement(
            "a lab needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to create network namespaces: run "
            "it with sudo; everything else in gpuyard works without root"
        )
    if importlib.util.find_spec("pyroute2") is None:
        raise MissingRequirement(
            "a lab needs pyroute2, which is not installed: pip install 'gpuyard[lab]', "
            "or 'gpuyard[deploy]' to deploy to it"
        )


def _has_rights() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
        bits = int(effective.split()[1], 16)
    except (OSError, StopIteration, ValueError, IndexError):
        return os.geteuid() == 0
    return bool(bits >> _CAP_NET_ADMIN & 1 and bits >> _CAP_SYS_ADMIN & 1)


def namespace_names(plan: LabPlan, token: str) -> tuple[str, ...]:
    """Return the names for the fabric and each node; the random token makes them unique."""
    lab = f"gpuyard-{plan.name}-{token}"
    return (f"{lab}-fabric", *(f"{lab}-{node.name}" for node in plan.nodes))


def check_namespace_names(plan: LabPlan, names: Sequence[str]) -> None:
    """Raise ValueError unless these are the namespace names of a lab with this plan."""
    first = _LAB_NAMESPACE.fullmatch(names[0]) if names else None
    if first is None or tuple(names) != namespace_names(plan, first[2]):
        raise ValueError("its namespaces are not those of such a lab")


def existing_namespaces(names: Sequence[str]) -> list[str]:
    """Return the names of the namespaces that exist."""
    return [name for name in names if (NAMESPACES / name).exists()]


def find_namespaces(lab: str) -> list[str]:
    """Return the namespaces whose names fit a lab of this name, whoever created them."""
    pattern = re.compile(rf"gpuyard-{re.escape(lab)}-[0-9a-f]{{6}}-(fabric|node\d+)")
    return _list_namespaces(pattern)


def _list_namespaces(pattern: re.Pattern[str]) -> list[str]:
    if not NAMESPACES.is_dir():
        return []
    return sorted(path.name for path in NAMESPACES.iterdir() if pattern.fullmatch(path.name))


def namespaces_with_token(names: Sequence[str]) -> list[str]:
    """Return the existing namespaces with the token of these, which a killed change may have left."""
    lab = names[0].removesuffix("-fabric")
    pattern = re.compile(rf"{re.escape(lab)}-(fabric|node\d+)")
    return _list_namespaces(pattern)


def create_network(plan: LabPlan, names: Sequence[str]) -> None:
    """Create namespaces, bridges, and links; the host's own network stays unchanged."""
    with _explained_errors():
        for name in names:
            _create_namespace(name)
        _create_fabric(plan, names)
        for index, name in enumerate(names[1:]):
            _create_node(plan, index, name)


def add_nodes(plan: LabPlan, names: Sequence[str], first: int) -> None:
    """Create the nodes from this number on, in a lab of one rack that has the others."""
    from pyroute2 import IPRoute

    with _explained_errors():
        for name in names[1 + first :]:
            _create_namespace(name)
        with IPRoute(netns=names[0]) as fabric:
            bridge = _index(fabric, _RACK.format(0))
            for index in range(first, len(plan.nodes)):
                _connect_node(fabric, plan, names, index, bridge)
        for index in range(first, len(plan.nodes)):
            _create_node(plan, index, names[1 + index])


def _create_namespace(name: str) -> None:
    from pyroute2 import netns

    # a child process creates it, and would do so even after an interrupted parent has cleaned up
    with _delayed_interrupts():
        netns.create(name)


@contextlib.contextmanager
def _explained_errors() -> Iterator[None]:
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        yield
    except NetlinkError as error:
        raise GpuyardError(
            f"the kernel refused a part of the lab: {error}; check that it supports veth, bridge, and sch_tbf"
        ) from error
    except OSError as error:
        raise GpuyardError(f"cannot create the lab's namespaces: {error.strerror}") from error


@contextlib.contextmanager
def _delayed_interrupts() -> Iterator[None]:
    """Delay signals that end the process until the end of the block."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, *ENDING_SIGNALS})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def remove_network(names: Sequence[str]) -> None:
    """Stop all processes in these namespaces and remove them; missing ones are no error."""
    from pyroute2 import netns

    # pyroute2 treats a name with a slash as a path and would remove that file
    for name in names:
        if not _LAB_NAMESPACE.fullmatch(name):
            raise GpuyardError(f"{name!r} is not a lab namespace, so it was not removed")
    _stop_processes(names)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            netns.remove(name)


def processes_in(names: Sequence[str]) -> list[int]:
    """Return the IDs of the processes in these network namespaces."""
    identities = set()
    for name in names:
        with contextlib.suppress(OSError):
            identities.add(_identity(NAMESPACES / name))
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if _identity(entry / "ns" / "net") in identities:
                    pids.append(int(entry.name))
    return pids


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _stop_processes(names: Sequence[str]) -> None:
    own_network = _identity(Path("/proc/self/ns/net"))
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        pids = processes_in([name for name in names if _is_other_namespace(name, own_network)])
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal_number)
        deadline = time.monotonic() + _STOP_SECONDS
        while pids and time.monotonic() < deadline:
            time.sleep(0.02)
            pids = [pid for pid in pids if Path(f"/proc/{pid}/ns/net").exists()]
        if not pids:
            return


def _is_other_namespace(name: str, own_network: tuple[int, int]) -> bool:
    """Return False for this process's own namespace and for a file that is not a namespace."""
    try:
        return _identity(NAMESPACES / name) != own_network
    except OSError:
        return False


def _create_fabric(plan: LabPlan, names: Sequence[str]) -> None:
    from pyroute2 import IPRoute

    with IPRoute(netns=names[0]) as fabric:
        racks = [_create_bridge(fabric, _RACK.format(rack)) for rack in range(plan.racks)]
        if plan.racks > 1:
            core = _create_bridge(fabric, _CORE)
            for rack, bridge in enumerate(racks):
                fabric.link("add", ifname=f"up{rack}", kind="veth", peer={"ifname": f"down{rack}"})
                for end, master in ((f"up{rack}", bridge), (f"down{rack}", core)):
                    port = _attach(fabric, end, master)
                    if plan.uplink_bytes_per_second is not None:
                        _shape(fabric, port, plan.shape(plan.uplink_bytes_per_second))
        for index, node in enumerate(plan.nodes):
            _connect_node(fabric, plan, names, index, racks[node.rack])


def _connect_node(
    fabric: Any, plan: LabPlan, names: Sequence[str], index: int, bridge: int
) -> None:
    port_name = f"port{index}"
    for stale in fabric.link_lookup(ifname=port_name):  # of a node that is being removed
        fabric.link("del", index=stale)
    peer = {"ifname": INTERFACE, "net_ns_fd": names[1 + index]}
    fabric.link("add", ifname=port_name, kind="veth", peer=peer)
    port = _attach(fabric, port_name, bridge)
    _shape(fabric, port, plan.shape(plan.nodes[index].rate_bytes_per_second))


def _create_node(plan: LabPlan, index: int, name: str) -> None:
    from pyroute2 import IPRoute

    node = plan.nodes[index]
    with IPRoute(netns=name) as route:
        port = _index(route, INTERFACE)
        route.addr("add", index=port, address=node.address, prefixlen=PREFIX_LENGTH)
        for up in (_index(route, "lo"), port):
            route.link("set", index=up, state="up")
        _shape(route, port, plan.shape(node.rate_bytes_per_second))
        if plan.latency_seconds:
            _add_delay(route, port, plan.latency_seconds * plan.dilation)


def _create_bridge(route: Any, name: str) -> int:
    route.link("add", ifname=name, kind="bridge")
    index = _index(route, name)
    route.link("set", index=index, state="up")
    return index


def _attach(route: Any, name: str, bridge: int) -> int:
    index = _index(route, name)
    route.link("set", index=index, master=bridge, state="up")
    return index


def set_rates(plan: LabPlan, names: Sequence[str], rate_bytes_per_second: float) -> None:
    """Change the rate of every node's link in both directions; rack uplinks stay unchanged."""
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    shape = plan.shape(rate_bytes_per_second)
    try:
        with IPRoute(netns=names[0]) as fabric:
            for index in range(len(plan.nodes)):
                _shape(fabric, _index(fabric, f"port{index}"), shape, "change")
        for name in names[1:]:
            with IPRoute(netns=name) as route:
                _shape(route, _index(route, INTERFACE), shape, "change")
    except NetlinkError as error:
        raise GpuyardError(
            f"the kernel refused the new rate of the lab's links: {error}"
        ) from error


def _shape(route: Any, index: int, shape: LinkShape, action: str = "add") -> None:
    route.tc(
        action,
        "tbf",
        index=index,
        handle="1:",
        rate=int(shape.rate_bytes_per_second),
        burst=shape.burst_bytes,
        limit=shape.limit_bytes,
    )


def _add_delay(route: Any, index: int, seconds: float) -> None:
    """Delay outgoing packets only, so that a path between two nodes has the delay once."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        route.tc(
            "add", "netem", index=index, handle="10:", parent="1:1", delay=round(seconds * 1e6)
        )
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EOPNOTSUPP):
            raise
        raise MissingRequirement(
            "this kernel has no netem, so a lab cannot add latency; omit --latency, or "
            "load it with: modprobe sch_netem"
        ) from error


def _index(route: Any, name: str) -> int:
    (index,) = route.link_lookup(ifname=name)
    return int(index)
