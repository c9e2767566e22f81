"""NVML, NVIDIA's library of its driver, and what it knows about GPUs that sysfs does not: their order, NVLinks
and peer access. Every call may fail on some driver; what fails is left out."""

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
    direct: Counter[frozenset[str]] = field(default_factory=Counter)  # NVLinks of a pair
    switched: Counter[str] = field(default_factory=Counter)  # NVLinks of a GPU to NVSwitches
    peers: frozenset[frozenset[str]] | None = None  # None: nothing was said


class NoNvml(Exception):
    """Why NVML does not answer."""


@contextmanager
def opened_nvml() -> Iterator[Any]:
    """The library while it is open; `NoNvml` where it, a driver or an answer is missing."""
    try:
        import pynvml
    except ImportError:
        raise NoNvml(
            "nvidia-ml-py is not installed; get it with: pip install nvidia-ml-py"
        ) from None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML: {error}") from None
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise NoNvml(f"NVML: {error}") from None
    finally:
        pynvml.nvmlShutdown()


def read_nvml() -> NvmlGpus | None:
    """None where there is no NVML, no driver or no GPU."""
    try:
        with opened_nvml() as nvml:
            return _read_gpus(nvml)
    except NoNvml:
        return None


def sysfs_address(bus_id: str | bytes) -> str:
    """NVML's 00000000:06:00.0 as sysfs writes it: 0000:06:00.0."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _read_gpus(nvml: Any) -> NvmlGpus | None:
    handles: dict[str, Any] = {}
    products: dict[str, str] = {}
    for i in range(nvml.nvmlDeviceGetCount()):
        handle = _ask(nvml, "nvmlDeviceGetHandleByIndex", i)
        pci = handle and _ask(nvml, "nvmlDeviceGetPciInfo", handle)
        if pci:
            address = sysfs_address(pci.busId)
            handles[address] = handle
            name = _ask(nvml, "nvmlDeviceGetName", handle) or ""
            products[address] = name.decode() if isinstance(name, bytes) else str(name)
    if not handles:
        return None
    direct, switched = _nvlinks(nvml, handles)
    return NvmlGpus(products, direct, switched, _peers(nvml, handles))


def _nvlinks(nvml: Any, handles: dict[str, Any]) -> tuple[Counter[frozenset[str]], Counter[str]]:
    ends: Counter[tuple[str, str]] = Counter()
    switched: Counter[str] = Counter()
    for address, handle in handles.items():
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            if _ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            kind = _ask(nvml, "nvmlDeviceGetNvLinkRemoteDeviceType", handle, link)
            remote = _ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo", handle, link)
            other = sysfs_address(remote.busId) if remote else None
            if other in handles and other != address:
                ends[address, other] += 1
            elif kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
                switched[address] += 1
    # both GPUs of a pair report the same links, unless the driver fails for one of them
    direct = Counter({frozenset(pair): max(n, ends[pair[::-1]]) for pair, n in list(ends.items())})
    return direct, switched


def _peers(nvml: Any, handles: dict[str, Any]) -> frozenset[frozenset[str]] | None:
    statuses = {
        frozenset((a, b)): _ask(
            nvml, "nvmlDeviceGetP2PStatus", handles[a], handles[b], _READ_CAPABILITY
        )
        for a, b in combinations(handles, 2)
    }
    if all(status is None for status in statuses.values()):
        return None
    return frozenset(pair for pair, status in statuses.items() if status == nvml.NVML_P2P_STATUS_OK)


def _ask(nvml: Any, call: str, *arguments: Any) -> Any:
    try:
        return getattr(nvml, call)(*arguments)
    except (nvml.NVMLError, AttributeError):  # an older nvidia-ml-py lacks the newer calls
        return None
