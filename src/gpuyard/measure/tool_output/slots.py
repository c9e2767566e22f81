"""Reads PCIe slots of GPUs and network cards from `lspci -vv`, and slots, clocks, and errors from `nvidia-smi -q`."""

import re
from collections.abc import Iterator

from gpuyard.measure.links.records import GpuSlot
from gpuyard.measure.tool_output.readings import DeviceHealth

LSPCI_SIGNATURE = re.compile(r"^[ \t]+LnkSta:[ \t]+Speed[ \t]", re.MULTILINE)
SMI_SIGNATURE = re.compile(r"^=+NVSMI LOG=+$|^[ \t]+GPU Link Info$", re.MULTILINE)
# GT/s per lane of each PCIe generation
_MIN_CARD_LANES = 8  # network cards with fewer are not for training
_TRANSFERS = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}
_IDLE = re.compile(r"^P[5-9]$|^P1\d$")  # performance states of a GPU that saves power
_SLOWDOWNS = (
    "HW Slowdown", "HW Thermal Slowdown", "HW Power Brake Slowdown", "SW Thermal Slowdown",
    "SW Power Cap",
)  # fmt: skip


def read_lspci(text: str) -> tuple[list[DeviceHealth], list[str]]:
    """Read the link of every GPU and fast network card, and the bridges whose ACS redirects requests of peers."""
    devices: list[DeviceHealth] = []
    bridges: list[str] = []
    for block in re.split(r"\n(?=[0-9a-f]{2,4}:)", text):
        head = re.match(
            r"\s*(?P<address>[0-9a-f:]+\.[0-7]) (?P<kind>[^:\[]+)[^:]*: (?P<name>.+)", block
        )
        if head is None:
            continue
        if re.search(r"ACSCtl:.*ReqRedir\+", block):
            bridges.append(head["address"])
        is_gpu = bool(
            re.search(r"3D controller|VGA|Display|Processing accel", head["kind"])
            and re.search(r"NVIDIA|AMD", head["name"])
        )
        is_card = bool(re.search(r"Infiniband|Ethernet|Network controller", head["kind"]))
        most = re.search(r"LnkCap:.*Speed ([\d.]+)GT/s.*Width x(\d+)", block)
        now = re.search(r"LnkSta:\s+Speed ([\d.]+)GT/s.*Width x(\d+)", block)
        if now is None or not (is_gpu or is_card):
            continue
        if is_card and (most is None or int(most[2]) < _MIN_CARD_LANES):
            continue
        kind = "NIC" if is_card else "GPU"
        number = sum(device.is_network_card == is_card for device in devices)
        slot = GpuSlot(
            gpu=f"{kind}{number}",
            address=head["address"],
            width=int(now[2]),
            max_width=int(most[2]) if most else None,
            speed=float(now[1]),
            max_speed=float(most[1]) if most else None,
            port_max_width=None,
            port_max_speed=None,
        )
        model = re.sub(r"\s*\(rev .*", "", head["name"])
        devices.append(DeviceHealth(model, slot, is_network_card=is_card))
    return devices, bridges


def read_smi_query(text: str) -> list[DeviceHealth]:
    """Read every GPU of `nvidia-smi -q`."""
    blocks = re.split(r"^GPU (?=[0-9A-Fa-f]{4,8}:)", text, flags=re.MULTILINE)[1:]
    return [_read_gpu(f"GPU{number}", block) for number, block in enumerate(blocks)]


def _read_gpu(gpu: str, block: str) -> DeviceHealth:
    values = dict(_flatten(block))

    def number(*keys: str) -> float | None:
        for key in keys:
            if match := re.match(r"[\d.]+", values.get(key, "")):
                return float(match[0])
        return None

    pcie = "PCI/GPU Link Info/PCIe Generation"
    generation = number(f"{pcie}/Current")
    reachable = number(f"{pcie}/Host Max", f"{pcie}/Max")
    best = number(f"{pcie}/Device Max", f"{pcie}/Max")
    width = "PCI/GPU Link Info/Link Width"
    lanes, max_lanes = number(f"{width}/Current"), number(f"{width}/Max")
    reasons = [
        reason
        for reason in _SLOWDOWNS
        for parent in ("Clocks Event Reasons", "Clocks Throttle Reasons")
        for key in (f"{parent}/{reason}", f"{parent}/HW Slowdown/{reason}")
        if values.get(key) == "Active"
    ]
    return DeviceHealth(
        name=values.get("Product Name", "unknown GPU"),
        slot=GpuSlot(
            gpu=gpu,
            address=block.split("\n", 1)[0].strip().lower(),
            width=int(lanes) if lanes else None,
            max_width=int(max_lanes) if max_lanes else None,
            speed=_TRANSFERS.get(int(generation or 0)),
            max_speed=_TRANSFERS.get(int(best or 0)),
            port_max_width=None,
            port_max_speed=_TRANSFERS.get(int(reachable or 0)),
        ),
        is_idle=bool(_IDLE.match(values.get("Performance State", ""))),
        throttle_reasons=_drop_general(reasons),
        uncorrectable_errors=_count_errors(values),
        pending_repairs="Yes" in (
            values.get("Remapped Rows/Pending"), values.get("Retired Pages/Pending Page Blacklist"),
        ),
        power_limit_watts=number(
            "GPU Power Readings/Current Power Limit", "Power Readings/Power Limit",
            "GPU Power Readings/Power Limit",
        ),
        default_power_limit_watts=number(
            "GPU Power Readings/Default Power Limit", "Power Readings/Default Power Limit"
        ),
        sm_clock_mhz=number("Clocks/SM"),
        max_sm_clock_mhz=number("Max Clocks/SM"),
    )  # fmt: skip


def _drop_general(reasons: list[str]) -> tuple[str, ...]:
    """Leave "HW Slowdown" out if a kind of it is named, too."""
    kinds = [reason for reason in reasons if reason.startswith("HW ") and reason != "HW Slowdown"]
    return tuple(r for r in dict.fromkeys(reasons) if r != "HW Slowdown" or not kinds)


def _count_errors(values: dict[str, str]) -> int:
    """Return the uncorrectable memory errors since the last reset."""
    names = (
        "ECC Errors/Volatile/SRAM Uncorrectable",
        "ECC Errors/Volatile/SRAM Uncorrectable Parity",
        "ECC Errors/Volatile/SRAM Uncorrectable SEC-DED",
        "ECC Errors/Volatile/DRAM Uncorrectable",
        "ECC Errors/Volatile/Double Bit/Total",
    )
    return sum(int(values[name]) for name in names if values.get(name, "").isdigit())


def _flatten(block: str) -> Iterator[tuple[str, str]]:
    """Yield "A/B/C" and its value for each line below the headings A and B."""
    path: list[tuple[int, str]] = []
    for line in block.splitlines():
        text = line.strip()
        indent = len(line) - len(line.lstrip())
        if not text or indent == 0:
            continue
        while path and path[-1][0] >= indent:
            path.pop()
        name, colon, value = text.partition(" : ")
        key = "/".join([*(heading for _, heading in path), name.strip()])
        if colon:
            yield key, value.strip()
        else:
            path.append((indent, name.strip()))
