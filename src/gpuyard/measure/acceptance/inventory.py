"""Reads the parts of the node that this process runs on. A part that cannot be read is None or missing."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import psutil

from gpuyard.cpu import cpu_model, os_name, usable_cores
from gpuyard.errors import UserMistake
from gpuyard.hardware.nvml import convert_bus_id, read_nvml
from gpuyard.hardware.readers.xml_text import Element, parse_xml
from gpuyard.measure.acceptance.records import Disk, GpuFacts, GpuSource, Inventory, Nic
from gpuyard.measure.links.facts import read_host_facts
from gpuyard.measure.record import torch_version
from gpuyard.run.probe import cuda_gpus
from gpuyard.version import __version__

_SMI_SECONDS = 60.0
_SECTOR_BYTES = 512  # the unit of /sys/block/*/size, whatever the disk's own sector size is
_DRIVERS = ("dev/nvidiactl", "dev/dxg", "dev/kfd")
_DEVICE = re.compile(r"nvidia\d+")
_VIRTUAL_DISKS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd")
_SLOWDOWNS = (
    "hw_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "sw_thermal_slowdown",
)


def read_inventory(
    root: Path = Path("/"), environment: Mapping[str, str] = os.environ
) -> Inventory:
    """Read this node's parts; GPUs come from nvidia-smi, from Slurm's grant, or from device nodes."""
    driver, gpus = _ask_nvidia_smi()
    source: GpuSource = "nvidia-smi" if gpus else "none"
    if not gpus and (granted := _count_granted(environment)):
        gpus, source = (GpuFacts(),) * granted, "slurm"
    if not gpus and (nodes := _count_device_nodes(root)):
        gpus, source = (GpuFacts(),) * nodes, "device nodes"
    facts = read_host_facts(root)
    return Inventory(
        boot_id=_read_boot_id(root),
        cpu_model=cpu_model(),
        cores=len(usable_cores()),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        os=os_name(),
        gpuyard=__version__,
        torch=torch_version(),
        driver=driver,
        gpus=gpus,
        gpu_source=source,
        # torch cannot use a GPU without the driver's device, and its import takes seconds
        torch_gpus=cuda_gpus() if any((root / name).exists() for name in _DRIVERS) else (),
        disks=_read_disks(root),
        nics=_read_nics(),
        virtual_machine=facts.virtual_machine,
        iommu=facts.iommu,
        acs_bridges=None if facts.acs_bridges is None else len(facts.acs_bridges),
    )


def _ask_nvidia_smi() -> tuple[str | None, tuple[GpuFacts, ...]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None, ()
    try:
        done = subprocess.run(
            (program, "-q", "-x"), capture_output=True, timeout=_SMI_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None, ()
    return read_smi(done.stdout.decode(errors="replace"))


def read_smi(text: str) -> tuple[str | None, tuple[GpuFacts, ...]]:
    """Read the driver version and the GPUs from the output of `nvidia-smi -q -x`."""
    try:
        log = parse_xml(text, "nvidia-smi")
    except UserMistake:
        return None, ()
    nvlinks = _count_nvlinks()
    gpus = tuple(_read_gpu(element, nvlinks) for element in log.all("gpu"))
    return log.find("driver_version"), gpus


def _read_gpu(element: Element, nvlinks: Mapping[str, int]) -> GpuFacts:
    link = ("pci", "pci_gpu_link_info")
    # newer drivers call them event reasons
    reasons = (
        ("clocks_throttle_reasons", "clocks_throttle_reason_"),
        (
            "clocks_event_reasons",
            "clocks_event_reason_",
        ),
    )
    active = (
        name.replace("_", " ")
        for name in _SLOWDOWNS
        if any(element.find(group, prefix + name) == "Active" for group, prefix in reasons)
    )
    errors = [
        _parse_number(element.find("ecc_errors", "volatile", name))
        for name in ("sram_uncorrectable", "dram_uncorrectable")
    ]
    memory = _parse_number(element.find("fb_memory_usage", "total"))
    bus_id = element.find("pci", "pci_bus_id") or element.attributes.get("id", "")
    return GpuFacts(
        name=element.find("product_name"),
        memory_bytes=None if memory is None else memory * 2**20,
        lanes=_parse_number(element.find(*link, "link_widths", "current_link_width")),
        max_lanes=_parse_number(element.find(*link, "link_widths", "max_link_width")),
        max_generation=_parse_number(element.find(*link, "pcie_gen", "max_link_gen")),
        max_clock_mhz=_parse_number(element.find("max_clocks", "sm_clock")),
        nvlinks=nvlinks.get(convert_bus_id(bus_id)) if ":" in bus_id else None,
        slowdowns=tuple(active),
        uncorrected_errors=None if None in errors else sum(filter(None, errors)),
    )


def _parse_number(text: str | None) -> int | None:
    """Return the number in "16x", "15360 MiB", or "1590 MHz"."""
    match = re.match(r"\d{1,9}", text or "")
    return int(match[0]) if match else None


def _count_nvlinks() -> dict[str, int]:
    nvml = read_nvml()
    if nvml is None:
        return {}
    counts = dict.fromkeys(nvml.products, 0)
    for pair, links in nvml.direct_links.items():
        for address in pair:
            counts[address] += links
    for address, links in nvml.switch_links.items():
        counts[address] += links
    return counts


def _count_granted(environment: Mapping[str, str]) -> int:
    """Count the GPUs that Slurm gave to this step; Slurm names them by index."""
    granted = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or ""
    return len([index for index in granted.split(",") if index.strip()])


def _count_device_nodes(root: Path) -> int:
    devices = root / "dev"
    return sum(bool(_DEVICE.fullmatch(node.name)) for node in devices.glob("nvidia*"))


def _read_boot_id(root: Path) -> str:
    try:
        return (root / "proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _read_disks(root: Path) -> tuple[Disk, ...]:
    disks = []
    for block in sorted((root / "sys/block").glob("*")):
        try:
            size = int((block / "size").read_text()) * _SECTOR_BYTES
        except (OSError, ValueError):
            continue
        if size and not block.name.startswith(_VIRTUAL_DISKS):
            disks.append(Disk(name=block.name, bytes=size))
    return tuple(disks)


def _read_nics() -> tuple[Nic, ...]:
    return tuple(
        Nic(name=name, bits_per_second=stats.speed * 1e6 if stats.speed > 0 else None)
        for name, stats in sorted(psutil.net_if_stats().items())
        if stats.isup and not name.startswith("lo")
    )
