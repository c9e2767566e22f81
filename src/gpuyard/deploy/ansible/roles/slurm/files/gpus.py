"""Prints as JSON what Slurm is told of this machine: sockets, cores, and the GPUs with the cores that are near them.

It runs on the machine itself, with nothing but Python. Slurm counts cores through all sockets, whatever numbers the
kernel gives to their threads.
"""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("/")

Core = tuple[int, int]
"""Its socket, and its number there."""


def main() -> None:
    threads = _threads()
    cores = sorted(set(threads.values()))
    sockets = sorted({package for package, _ in cores})
    # one that is not the same in every socket is described by its number of CPUs alone
    even = len(cores) % max(len(sockets), 1) == 0 and len(threads) % max(len(cores), 1) == 0
    described = {
        "cpus": len(threads),
        "sockets": len(sockets) if even else 0,
        "cores_per_socket": len(cores) // len(sockets) if even and sockets else 0,
        "threads_per_core": len(threads) // len(cores) if even and cores else 0,
        "gpus": _gpus(threads, cores) if even else [{"device": d, "cores": ""} for d in _devices()],
    }
    sys.stdout.write(json.dumps(described))


def _threads() -> dict[int, Core]:
    """The core of each of the kernel's CPUs: its socket, and its number there."""
    found = {}
    for topology in ROOT.glob("sys/devices/system/cpu/cpu[0-9]*/topology"):
        number = int(topology.parent.name[3:])
        try:
            found[number] = (
                _number(topology / "physical_package_id"),
                _number(topology / "core_id"),
            )
        except (OSError, ValueError):  # it is switched off
            continue
    return found


def _devices() -> list[str]:
    names = (path.name for path in ROOT.glob("dev/nvidia*"))
    return [
        f"/dev/{name}" for name in sorted(names, key=_order) if re.fullmatch(r"nvidia\d+", name)
    ]


def _order(name: str) -> int:
    return int("".join(filter(str.isdigit, name)) or 0)


def _gpus(threads: dict[int, Core], cores: list[Core]) -> list[dict[str, str]]:
    near = {}
    for information in ROOT.glob("proc/driver/nvidia/gpus/*/information"):
        minor = re.search(r"Device Minor:\s*(\d+)", information.read_text(encoding="utf-8"))
        bus = information.parent.name.lower()
        try:
            listed = (ROOT / "sys/bus/pci/devices" / bus / "local_cpulist").read_text(
                encoding="utf-8"
            )
        except OSError:
            continue
        if minor:
            mine = {cores.index(threads[cpu]) for cpu in _expanded(listed) if cpu in threads}
            if mine and len(mine) < len(cores):  # all of them says nothing
                near[f"/dev/nvidia{minor.group(1)}"] = _ranges(sorted(mine))
    return [{"device": device, "cores": near.get(device, "")} for device in _devices()]


def _expanded(listed: str) -> Iterator[int]:
    for part in filter(None, listed.strip().split(",")):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _ranges(numbers: list[int]) -> str:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _number(path: Path) -> int:
    return int(path.read_text(encoding="ascii"))


if __name__ == "__main__":
    main()
