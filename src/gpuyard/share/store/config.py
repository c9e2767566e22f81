"""What a share is, and where: its GPUs and its rules, in a file beside the store, so that a damaged store takes none of it."""

import contextlib
import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpuyard import files
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.share.isolation.devices import DeviceNumber, companions, number_of
from gpuyard.share.turns.choice import Rates
from gpuyard.share.turns.rules import Rules

ADMIN_GROUP = "gpuyard-admin"
MACHINE = Path("/var/lib/gpuyard")
"""Where the share of all users of a machine is."""
_FILE = "share.json"


@dataclass(frozen=True)
class SharedGpu:
    """A GPU that can be leased."""

    index: int
    name: str
    memory_bytes: int | None = None
    vendor: str = "nvidia"
    fake: bool = False
    catalog: str | None = None
    """Its row in the catalog, by which the cloud's price is known."""
    device: str | None = None
    """The file that a process opens to use it, where devices are closed to others."""


@dataclass(frozen=True)
class MachineIdentity:
    """Whose GPUs they are: several machines may see the same disk, and each has its own GPU 0."""

    name: str
    id: str
    """What systemd calls it; empty where nobody knows."""
    boot_id: str
    """When this was written."""

    @classmethod
    def this(cls, boot_id: str) -> "MachineIdentity":
        id_ = ""
        with contextlib.suppress(OSError, ValueError):
            id_ = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        return cls(os.uname().nodename, id_, boot_id)

    def is_this(self, boot_id: str) -> bool:
        """In the same boot it is, whatever it is called by now, or in a container."""
        if self.boot_id == boot_id:
            return True
        here = MachineIdentity.this(boot_id)
        return self.name == here.name and (self.id == here.id or not (self.id and here.id))


@dataclass(frozen=True)
class ShareConfig:
    """Written by `gpuyard share setup`."""

    gpus: tuple[SharedGpu, ...]
    admin_group: str = ADMIN_GROUP
    grace_seconds: float = 5.0
    """From asking a process to end to ending it."""
    notice_seconds: float = 3600.0
    """A reservation cuts a running lease that has no end only so long after it was made."""
    rates: Rates = field(default_factory=dict)
    """All-reduce bytes a second of each set of GPUs, by bit mask; empty where the topology is unknown."""

    scheduler: str = "local"
    """Who gives them out: gpuyard itself, or "slurm"."""

    isolation: str = ""
    """By what the devices of other GPUs are closed to a lease: "cgroup2", "cgroup1", or not at all."""

    rules: Rules = field(default_factory=Rules)

    machine: MachineIdentity | None = None
    """None: an earlier version did not write it down."""

    @property
    def guard(self) -> str:
        """What keeps a process from a GPU that it has no lease for: `cgroups`, `slurm`, or only `audit`."""
        if self.scheduler != "local":
            return self.scheduler
        return "cgroups" if self.isolation else "audit"

    @property
    def indices(self) -> tuple[int, ...]:
        return tuple(gpu.index for gpu in self.gpus)

    def gpu(self, index: int) -> SharedGpu:
        return next(gpu for gpu in self.gpus if gpu.index == index)

    def devices(self, indices: Collection[int]) -> tuple[list[DeviceNumber], list[DeviceNumber]]:
        """Numbers of the devices of these GPUs, and of all others; one that is not there can't be opened either."""
        found: tuple[list[DeviceNumber], list[DeviceNumber]] = ([], [])
        for gpu in self.gpus:
            device = gpu.device or ""
            for path in (device, *companions(device)):
                with contextlib.suppress(OSError):
                    found[gpu.index not in indices].append(number_of(path))
        return found

    def check_is_ours(self, instead: str) -> None:
        """Raises where another scheduler gives the GPUs out, with what to use there."""
        if self.scheduler != "local":
            raise GpuyardError(f"Slurm gives these GPUs out now; use: {instead}")

    def check_machine(self, directory: Path, boot_id: str) -> None:
        """Raises on another machine than the one that it was set up on: to that one, all leases here look dead."""
        if self.machine is not None and not self.machine.is_this(boot_id):
            raise GpuyardError(
                f"{directory} has the leases of the machine {self.machine.name}, and this is "
                f"{os.uname().nodename}. Where machines share a disk, each needs a directory of its own: name "
                "another one with GPUYARD_SHARE_DIR. If it is the same machine under another name, run: "
                "gpuyard share setup --move"
            )

    def text(self) -> str:
        """The file."""
        return json.dumps(asdict(self), indent=1) + "\n"


def share_directory() -> Path:
    """The one that this process uses."""
    named = os.environ.get("GPUYARD_SHARE_DIR")
    if named:
        return Path(named).expanduser().absolute()
    if config_file(MACHINE).exists():
        return MACHINE
    return own_directory()


def own_directory() -> Path:
    """One person's, who needs neither root nor a service. By machine: where several share a home, each has its GPUs."""
    return files.home() / "share" / os.uname().nodename


def setup_directory() -> Path:
    """Where `share setup` makes one."""
    if os.environ.get("GPUYARD_SHARE_DIR"):
        return share_directory()
    return MACHINE if os.geteuid() == 0 else own_directory()


def config_file(directory: Path) -> Path:
    """Where a share's rules are."""
    return directory / _FILE


def read_config(directory: Path) -> ShareConfig:
    """What `share setup` wrote."""
    path = config_file(directory)
    try:
        return _config(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise GpuyardError(
            f"{directory} is not set up to share GPUs; run: gpuyard share setup"
        ) from None
    # a user's mistake is what rules say of values that no rule has
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
        UserMistake,
    ) as error:
        raise GpuyardError(
            f"{path} can't be read ({error}); write it again with: gpuyard share setup"
        ) from error


def _config(document: dict[str, Any]) -> ShareConfig:
    """Keys of a later version are passed over."""
    known = {part.name for part in fields(ShareConfig)}
    read = {
        **{name: value for name, value in document.items() if name in known},
        "gpus": tuple(SharedGpu(**gpu) for gpu in document["gpus"]),
        "rates": {int(gpus): float(rate) for gpus, rate in document.get("rates", {}).items()},
        "rules": Rules.from_document(document.get("rules", {})),
        "machine": MachineIdentity(**document["machine"]) if document.get("machine") else None,
    }
    for name in ("grace_seconds", "notice_seconds"):
        if name in read:
            read[name] = float(read[name])
    for gpu in read["gpus"]:
        texts = (gpu.name, gpu.vendor, gpu.catalog or "", gpu.device or "")
        if not (
            isinstance(gpu.index, int)
            and isinstance(gpu.memory_bytes, int | None)
            and all(isinstance(text, str) and "\0" not in text for text in texts)
        ):
            raise TypeError(f"{gpu} is no GPU")
    for name in ("admin_group", "scheduler", "isolation"):
        if not isinstance(read.get(name, ""), str):
            raise TypeError(f"{read[name]!r} is no {name}")
    return ShareConfig(**read)
