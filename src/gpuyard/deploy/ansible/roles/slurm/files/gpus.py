"""Prints this machine's hardware for Slurm's configuration as JSON: sockets, cores, and GPUs with their nearest cores.

It runs on the machine itself and needs only Python. Slurm numbers cores across all sockets, independently of the
kernel's numbers for their threads.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/")

Core = tuple[int, int]
"""A socket, and the number of a core on it."""


def main() -> None:
    threads = _read_threads()
    cores = sorted(set(threads.values()))
    sockets = sorted({package for package, _ in cores})
    # If the sockets differ, only the number of CPUs is reported.
    even = len(cores) % max(len(sockets), 1) == 0 and len(threads) % max(len(cores), 1) == 0
    document = {
        "cpus": len(threads),
        "sockets": len(sockets) if even else 0,
        "cores_per_socket": len(cores) // len(sockets) if even and sockets else 0,
        "threads_per_core": len(threads) // len(cores) if even and cores else 0,
        "gpus": _read_gpus(threads, cores)
        if even
        else [{"device": device, "cores": ""} for device in _list_devices()],
    }
    sys.stdout.write(json.dumps(document))


def _read_threads() -> dict[int, Core]:
    """Return the core that each of the kernel's CPUs belongs to."""
    threads = {}
    for topology in ROOT.glob("sys/devices/system/cpu/cpu[0-9]*/topology"):
        cpu = int(topology.parent.name[3:])
        try:
            threads[cpu] = (
                _read_number(topology / "physical_package_id"),
                _read_number(topology / "core_id"),
            )
        except (OSError, ValueError):  # the CPU is offline
            continue
    return threads


def _list_devices() -> list[str]:
    names = (path.name for path in ROOT.glob("dev/nvidia*"))
    numbered = [name for name in names if re.fullmatch(r"nvidia\d+", name)]
    return [f"/dev/{name}" for name in sorted(numbered, key=lambda name: int(name[6:]))]


def _read_gpus(threads: dict[int, Core], cores: list[Core]) -> list[dict[str, str]]:
    nearest = {}
    for information in ROOT.glob("proc/driver/nvidia/gpus/*/information"):
        minor = re.search(r"Device Minor:\s*(\d+)", information.read_text(encoding="utf-8"))
        bus = information.parent.name.lower()
        try:
            cpu_list = (ROOT / "sys/bus/pci/devices" / bus / "local_cpulist").read_text(
                encoding="utf-8"
            )
        except OSError:
            continue
        if minor:
            local = {cores.index(threads[cpu]) for cpu in _parse_list(cpu_list) if cpu in threads}
            if local and len(local) < len(cores):  # all cores would carry no information
                nearest[f"/dev/nvidia{minor.group(1)}"] = _format_list(sorted(local))
    return [{"device": device, "cores": nearest.get(device, "")} for device in _list_devices()]


def _parse_list(cpu_list: str) -> Iterator[int]:
    for part in filter(None, cpu_list.strip().split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _format_list(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _read_number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


if __name__ == "__main__":
    main()
