"""Facts from NVML, the NVIDIA Management Library, that sysfs lacks: the order of GPUs, NVLinks, and peer access.

Every call may fail on some driver; facts whose call fails are left out.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

_READ_CAPABILITY = 0  # nvidia-ml-py 13 has a tuple for NVML_P2P_CAPS_INDEX_READ


@dataclass(frozen=True)
class NvmlGpus:
    """GPUs by bus address (0000:06:00.0), in the order of nvidia-smi."""

    products: dict[str, str]
    direct_links: Counter[frozenset[str]] = field(default_factory=Counter)  # by pair of GPUs
    switch_links: Counter[str] = field(default_factory=Counter)  # to NVSwitches, by GPU
    peers: frozenset[frozenset[str]] | None = None  # None: unknown


class NvmlUnavailable(Exception):
    """NVML cannot be used; the message is the reason."""


@contextmanager
def open_nvml() -> Iterator[Any]:
    """Open the library; raise `NvmlUnavailable` if it or a driver is missing, or if a call fails."""
    try:
        import pynvml
    except ImportError:
        raise NvmlUnavailable(
            "nvidia-ml-py is not installed; install it with: pip install nvidia-ml-py"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML: {error}") from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise NvmlUnavailable(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def read_nvml() -> NvmlGpus | None:
    """Read all GPUs; return None without NVML, driver, or GPU."""
    try:
        with open_nvml() as nvml:
            return _read_gpus(nvml)
    except NvmlUnavailable:
        return None


def convert_bus_id(bus_id: str | bytes) -> str:
    """Convert NVML's 00000000:06:00.0 to the form of sysfs, 0000:06:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _read_gpus(nvml: Any) -> NvmlGpus | None:
    handles: dict[str, Any] = {}
    products: dict[str, str] = {}
    for i in range(nvml.nvmlDeviceGetCount()):
        handle = _call(nvml, "nvmlDeviceGetHandleByIndex", i)
        pci = handle and _call(nvml, "nvmlDeviceGetPciInfo", handle)
        if pci:
            address = convert_bus_id(pci.busId)
            handles[address] = handle
            name = _call(nvml, "nvmlDeviceGetName", handle) or ""
            products[address] = name.decode() if isinstance(name, bytes) else str(name)
    if not handles:
        return None
    direct_links, switch_links = _count_nvlinks(nvml, handles)
    return NvmlGpus(products, direct_links, switch_links, _find_peers(nvml, handles))


def _count_nvlinks(
    nvml: Any, handles: dict[str, Any]
) -> tuple[Counter[frozenset[str]], Counter[str]]:
    """Count the direct links of each pair, and the links of each GPU to NVSwitches."""
    reported: Counter[tuple[str, str]] = Counter()
    switch_links: Counter[str] = Counter()
    for address, handle in handles.items():
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            if _call(nvml, "nvmlDeviceGetNvLinkState", handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            kind = _call(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            remote = _call(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            other = convert_bus_id(remote.busId) if remote else None
            if other in handles and other != address:
                reported[address, other] += 1
            elif kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switch_links[address] += 1
    # both GPUs of a pair report the same links, unless the driver fails for one of them
    direct_links = Counter(
        {frozenset(pair): max(n, reported[pair[::-1]]) for pair, n in list(reported.items())}
    )
    return direct_links, switch_links


def _find_peers(nvml: Any, handles: dict[str, Any]) -> frozenset[frozenset[str]] | None:
    statuses = {
        frozenset((a, b)): _call(
            nvml, "nvmlDeviceGetP2PStatus", handles[a], handles[b], _READ_CAPABILITY
        )
        for a, b in combinations(handles, 2)
    }
    if all(status is None for status in statuses.values()):
        return None
    return frozenset(pair for pair, status in statuses.items() if status == nvml.NVML_P2P_STATUS_OK)


def _call(nvml: Any, function: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, function)(*arguments)
    except (nvml.NVMLError, AttributeError):  # an older nvidia-ml-py lacks the newer calls
        return None
