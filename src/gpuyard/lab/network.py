"""The namespaces of one lab, its bridges and shaped links, made and removed through netlink."""

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

NAMESPACES = Path("/var/run/netns")
_OURS = re.compile(r"gpuyard-([a-z0-9-]+)-([0-9a-f]{6})-(fabric|node\d+)")
_CORE = "core"
_LEAVE_SECONDS = 2.0
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21


def check_can_make_labs() -> None:
    """Raises MissingRequirement with the next step, where this machine lacks something."""
    if sys.platform != "linux":
        raise MissingRequirement(
            "a lab is made of Linux network namespaces; everything else in gpuyard works without"
        )
    if not _has_rights():
        raise MissingRequirement(
            "a lab needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN, to make network namespaces: run "
            "it with sudo; everything else in gpuyard works without"
        )
    if importlib.util.find_spec("pyroute2") is None:
        raise MissingRequirement(
            "a lab needs pyroute2, which is not installed: pip install 'gpuyard[lab]'"
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
    """The fabric's, then each node's. The token makes them ours: nobody else has drawn it."""
    lab = f"gpuyard-{plan.name}-{token}"
    return (f"{lab}-fabric", *(f"{lab}-{node.name}" for node in plan.nodes))


def check_ours(plan: LabPlan, names: Sequence[str]) -> None:
    """Raises ValueError unless these are the names that the lab's namespaces were given when it was made."""
    first = _OURS.fullmatch(names[0]) if names else None
    if first is None or tuple(names) != namespace_names(plan, first[2]):
        raise ValueError("its namespaces are not those of such a lab")


def present(names: Sequence[str]) -> list[str]:
    """Those that exist now."""
    return [name for name in names if (NAMESPACES / name).exists()]


def like_of(lab: str) -> list[str]:
    """Namespaces named as those of a lab of this name would be, whoever made them."""
    like = re.compile(rf"gpuyard-{re.escape(lab)}-[0-9a-f]{{6}}-(fabric|node\d+)")
    if not NAMESPACES.is_dir():
        return []
    return sorted(path.name for path in NAMESPACES.iterdir() if like.fullmatch(path.name))


def make_network(plan: LabPlan, names: Sequence[str]) -> None:
    """Everything in namespaces of its own, the bridges too: the host's network is not touched."""
    from pyroute2 import netns
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        for name in names:
            # a child process makes it, and would still do so after an interrupted parent has cleaned up
            with _interrupts_held_back():
                netns.create(name)
        _make_fabric(plan, names)
        for index, name in enumerate(names[1:]):
            _make_node(plan, index, name)
    except NetlinkError as error:
        raise GpuyardError(
            f"the kernel refused a part of the lab: {error}; are veth, bridge and sch_tbf there?"
        ) from error
    except OSError as error:
        raise GpuyardError(f"the lab's namespaces can't be made: {error.strerror}") from error


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C and a request to end wait until the block is left."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def remove_network(names: Sequence[str]) -> None:
    """End what still runs in these namespaces, and remove them; what is not there is no mistake."""
    from pyroute2 import netns

    for (
        name
    ) in names:  # to pyroute2 a name with a slash is a path, and whatever lies there would go
        if not _OURS.fullmatch(name):
            raise GpuyardError(f"{name!r} is not a namespace of a lab; it was left as it is")
    _end_processes(names)
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            netns.remove(name)


def processes_in(names: Sequence[str]) -> list[int]:
    """The pids whose network is one of these namespaces."""
    identities = set()
    for name in names:
        with contextlib.suppress(OSError):
            identities.add(_identity(NAMESPACES / name))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if _identity(entry / "ns" / "net") in identities:
                    found.append(int(entry.name))
    return found


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _end_processes(names: Sequence[str]) -> None:
    own_network = _identity(Path("/proc/self/ns/net"))
    for kind in (signal.SIGTERM, signal.SIGKILL):
        pids = processes_in([name for name in names if _is_other(name, own_network)])
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, kind)
        deadline = time.monotonic() + _LEAVE_SECONDS
        while pids and time.monotonic() < deadline:
            time.sleep(0.02)
            pids = [pid for pid in pids if Path(f"/proc/{pid}/ns/net").exists()]
        if not pids:
            return


def _is_other(name: str, own_network: tuple[int, int]) -> bool:
    """A file whose bind mount was never made is not a namespace; nor is this process to be ended."""
    try:
        return _identity(NAMESPACES / name) != own_network
    except OSError:
        return False


def _make_fabric(plan: LabPlan, names: Sequence[str]) -> None:
    from pyroute2 import IPRoute

    with IPRoute(netns=names[0]) as fabric:
        racks = [_bridge(fabric, f"rack{rack}") for rack in range(plan.racks)]
        if plan.racks > 1:
            core = _bridge(fabric, _CORE)
            for rack, bridge in enumerate(racks):
                fabric.link("add", ifname=f"up{rack}", kind="veth", peer={"ifname": f"down{rack}"})
                for end, master in ((f"up{rack}", bridge), (f"down{rack}", core)):
                    port = _plug(fabric, end, master)
                    if plan.uplink_bytes_per_second is not None:
                        _shape(fabric, port, plan.shape(plan.uplink_bytes_per_second))
        for index, node in enumerate(plan.nodes):
            port_name = f"port{index}"
            peer = {"ifname": INTERFACE, "net_ns_fd": names[1 + index]}
            fabric.link("add", ifname=port_name, kind="veth", peer=peer)
            port = _plug(fabric, port_name, racks[node.rack])
            _shape(fabric, port, plan.shape(node.rate_bytes_per_second))


def _make_node(plan: LabPlan, index: int, name: str) -> None:
    from pyroute2 import IPRoute

    node = plan.nodes[index]
    with IPRoute(netns=name) as route:
        port = _index(route, INTERFACE)
        route.addr("add", index=port, address=node.address, prefixlen=PREFIX_LENGTH)
        for up in (_index(route, "lo"), port):
            route.link("set", index=up, state="up")
        _shape(route, port, plan.shape(node.rate_bytes_per_second))
        if plan.latency_seconds:
            _delay(route, port, plan.latency_seconds * plan.dilation)


def _bridge(route: Any, name: str) -> int:
    route.link("add", ifname=name, kind="bridge")
    index = _index(route, name)
    route.link("set", index=index, state="up")
    return index


def _plug(route: Any, name: str, bridge: int) -> int:
    index = _index(route, name)
    route.link("set", index=index, master=bridge, state="up")
    return index


def set_rates(plan: LabPlan, names: Sequence[str], rate_bytes_per_second: float) -> None:
    """Every node's link, both directions, while the lab is up; uplinks of racks stay as they are."""
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
            f"the kernel refused another rate of the lab's links: {error}"
        ) from error


def _shape(route: Any, index: int, shape: LinkShape, do: str = "add") -> None:
    route.tc(
        do,
        "tbf",
        index=index,
        handle="1:",
        rate=int(shape.rate_bytes_per_second),
        burst=shape.burst_bytes,
        limit=shape.limit_bytes,
    )


def _delay(route: Any, index: int, seconds: float) -> None:
    """On the way out of a node only, so that a way between two nodes has it once."""
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        route.tc(
            "add", "netem", index=index, handle="10:", parent="1:1", delay=round(seconds * 1e6)
        )
    except NetlinkError as error:
        if error.code not in (errno.ENOENT, errno.EOPNOTSUPP):
            raise
        raise MissingRequirement(
            "this kernel has no netem, so a lab here can't add latency; leave --latency out, or "
            "load it with: modprobe sch_netem"
        ) from error


def _index(route: Any, name: str) -> int:
    (index,) = route.link_lookup(ifname=name)
    return int(index)
