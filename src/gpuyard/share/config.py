"""The configuration of a share (its GPUs and its rules), in a file beside the store, so that it survives a damaged store."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import expand_home, home, write_text
from gpuyard.share.models import Rates

ADMIN_GROUP = "gpuyard-admin"
MACHINE_DIRECTORY = Path("/var/lib/gpuyard")
"""The share of all users of a machine."""
NOTHING, WARN, STOP = "none", "warn", "stop"
DEFAULT_JOB_POLICY = "fifo"
OWN, ALL = "own", "all"
_FILE = "share.json"
_LOCK = "share.json.lock"
_MAX_LIMIT = 1e9  # for any number in a policy
_MIN_HISTORY_SECONDS = 7 * 86400.0  # limits of GPU-hours are for a week


@dataclass(frozen=True)
class Rules:
    """The policy that `gpuyard share policy` sets. By default, requests are served in the order of arrival."""

    half_life_seconds: float | None = None
    """Time after which past GPU-hours count half; None: past use does not count."""
    fair_share: str = "user"
    """Whose past use counts: that of the `user` or of their primary `group`."""
    quotas: Mapping[str, int] = field(default_factory=dict)
    """GPUs that all members of a Unix group may hold at once."""
    weekly_hours: Mapping[str, float] = field(default_factory=dict)
    """GPU-hours that all members of a group may use in 7 days."""
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Priority by group. A user has the highest priority of their groups."""
    max_gpus_per_user: int | None = None
    """GPUs that one user may hold at once; None: no limit."""
    max_lease_seconds: float | None = None
    """Longest time of a lease or reservation, which leases without a time limit get; None: no limit."""
    idle_grace_seconds: float = 3600.0
    on_violation: str = NOTHING
    stop_after_seconds: float = 600.0
    job_policy: str = DEFAULT_JOB_POLICY
    """The policy by which the jobs of all users share the GPUs, which `gpuyard queue policy` sets."""
    resize_seconds: float | None = None
    """Shortest time between two resizes of running jobs; None: as the policy defines."""
    explore_gpu_seconds: float | None = None
    """GPU time of each trial under explore-then-focus; None: its default."""
    history_seconds: float | None = 400 * 86400.0
    """Time for which `usage` knows leases that have ended; None: forever."""
    commands: str = OWN
    """Commands that users see: only their `own`, or `all`. Admins see all."""

    def __post_init__(self) -> None:
        if self.fair_share not in ("user", "group"):
            raise UserMistake(f"fair share must be by user or group, got {self.fair_share!r}")
        if self.on_violation not in (NOTHING, WARN, STOP):
            raise UserMistake(
                f"the action on a violation must be none, warn, or stop, got {self.on_violation!r}"
            )
        if not _MIN_HISTORY_SECONDS <= (self.history_seconds or _MIN_HISTORY_SECONDS) < _MAX_LIMIT:
            raise UserMistake("the history must be kept for 7 days or more, or forever (none)")
        if self.commands not in (OWN, ALL):
            raise UserMistake(f"users can see their own commands or all, got {self.commands!r}")
        times = (
            self.half_life_seconds, self.idle_grace_seconds, self.stop_after_seconds,
            self.resize_seconds, self.explore_gpu_seconds, self.max_lease_seconds,
        )  # fmt: skip
        if not all(seconds is None or 0 < seconds < _MAX_LIMIT for seconds in times):
            raise UserMistake("the times of a policy must be above zero")
        limits = (*self.quotas.values(), *self.weekly_hours.values(), self.max_gpus_per_user or 0)
        if any(limit < 0 for limit in limits):
            raise UserMistake("a quota must be 0 or more")

    @classmethod
    def from_document(cls, document: Any) -> "Rules":
        """Build rules from the JSON of their `asdict`; refuse anything else."""
        unknown = UserMistake("this version of gpuyard does not know this policy")
        try:
            rules = cls(**document)
        except (TypeError, ValueError, AttributeError):
            raise unknown from None
        if not isinstance(rules.job_policy, str):
            raise unknown
        for limits, types in (
            (rules.quotas, (int,)),
            (rules.weekly_hours, (int, float)),
            (rules.priorities, (int,)),
        ):
            if not isinstance(limits, dict) or any(
                type(limit) not in types or not abs(limit) < _MAX_LIMIT for limit in limits.values()
            ):
                raise unknown
        if type(rules.max_gpus_per_user) not in (int, type(None)):
            raise unknown
        return rules

    def quotas_of(self, user: str, groups: frozenset[str]) -> dict[str, int]:
        """Return the quotas of a user by owner: `user NAME`, or the name of a group, which has no spaces."""
        quotas = {group: self.quotas[group] for group in groups & self.quotas.keys()}
        if self.max_gpus_per_user is not None:
            quotas[f"user {user}"] = self.max_gpus_per_user
        return quotas

    def check_quota(self, uid: int, user: str, count: int) -> None:
        """Refuse a request that is larger than the quota of its user or a group, because it would wait forever."""
        from gpuyard.share.caller import groups_of

        groups = groups_of(uid) if self.quotas else frozenset[str]()
        for owner, quota in sorted(self.quotas_of(user, groups).items()):
            if count > quota:
                raise UserMistake(f"{describe_quota(owner, quota)}; request fewer")

    def check_time(self, kind: str, seconds: float) -> None:
        """Refuse a lease or reservation that is longer than the maximum."""
        if self.max_lease_seconds is not None and seconds > self.max_lease_seconds:
            from gpuyard.units import format_seconds

            raise UserMistake(
                f"a {kind} may last {format_seconds(self.max_lease_seconds)} at most on this machine, got "
                f"{format_seconds(seconds)}; request less, with a checkpoint if the work takes longer"
            )

    def priority(self, groups: frozenset[str]) -> int:
        return max((self.priorities[group] for group in groups & self.priorities.keys()), default=0)


def describe_quota(owner: str, quota: int) -> str:
    """Describe a quota from `Rules.quotas_of`."""
    return f"{_name_owner(owner)} has a quota of {quota} GPU{'' if quota == 1 else 's'} at once"


def describe_used_quota(owner: str) -> str:
    return f"{_name_owner(owner)} has used up its quota"


def _name_owner(owner: str) -> str:
    return owner if " " in owner else f"the group {owner}"


@dataclass(frozen=True)
class SharedGpu:
    """A GPU that can be leased."""

    index: int
    name: str
    memory_bytes: int | None = None
    vendor: str = "nvidia"
    fake: bool = False
    catalog: str | None = None
    """ID in the catalog, which has its cloud prices."""
    device: str | None = None
    """Device file that a process opens to use it; set if devices are closed to other leases."""


@dataclass(frozen=True)
class MachineIdentity:
    """The machine that the GPUs belong to: several machines may see the same disk, each with its own GPU 0."""

    name: str
    id: str
    """systemd's machine ID; empty if unknown."""
    boot_id: str
    """Boot in which the configuration was written."""

    @classmethod
    def of_this_machine(cls, boot_id: str) -> "MachineIdentity":
        id_ = ""
        with contextlib.suppress(OSError, ValueError):
            id_ = Path("/etc/machine-id").read_text(encoding="ascii").strip()
        return cls(os.uname().nodename, id_, boot_id)

    def is_this_machine(self, boot_id: str) -> bool:
        """Return whether this is the same boot (whatever the name is now, or in a container) or the same machine."""
        if self.boot_id == boot_id:
            return True
        here = MachineIdentity.of_this_machine(boot_id)
        return self.name == here.name and (self.id == here.id or not (self.id and here.id))


@dataclass(frozen=True)
class ShareConfig:
    """The configuration that `gpuyard share setup` writes."""

    gpus: tuple[SharedGpu, ...]
    admin_group: str = ADMIN_GROUP
    grace_seconds: float = 5.0
    """Time between terminating a process and killing it."""
    notice_seconds: float = 3600.0
    """Shortest notice at which a reservation may end a running lease without a time limit."""
    rates: Rates = field(default_factory=dict)
    scheduler: str = "local"
    """Scheduler that hands out the GPUs: "local" (gpuyard itself) or "slurm"."""
    slurm_drained: bool = False
    """True if `share use local` has drained Slurm's node for this machine, so that leases continue without Slurm's answer."""
    isolation: str = ""
    """Mechanism that closes the devices of other GPUs to a lease: "cgroup2", "cgroup1", or ""."""
    rules: Rules = field(default_factory=Rules)
    machine: MachineIdentity | None = None

    @property
    def guard(self) -> str:
        """The protection against use of a GPU without a lease: `cgroups`, `slurm`, or only `audit`."""
        if self.scheduler != "local":
            return self.scheduler
        return "cgroups" if self.isolation else "audit"

    @property
    def indices(self) -> tuple[int, ...]:
        return tuple(gpu.index for gpu in self.gpus)

    def gpu(self, index: int) -> SharedGpu:
        return next(gpu for gpu in self.gpus if gpu.index == index)

    def check_gpus(self, count: int, gpus: tuple[int, ...]) -> None:
        """Raise UserMistake if this machine does not have these GPUs."""
        if count > len(self.gpus):
            raise UserMistake(f"{count} GPUs were requested; this machine has {len(self.gpus)}")
        for index in gpus:
            if index not in self.indices:
                raise UserMistake(
                    f"GPU {index} not found; this machine has {', '.join(map(str, self.indices))}"
                )

    def check_scheduler(self, alternative: str) -> None:
        """Raise GpuyardError if another scheduler hands out the GPUs, with the command to use there."""
        if self.scheduler != "local":
            raise GpuyardError(f"Slurm hands out these GPUs now; use: {alternative}")

    def check_machine(self, directory: Path, boot_id: str) -> None:
        """Raise GpuyardError on another machine than the one that was set up: there, all leases would look dead."""
        if self.machine is not None and not self.machine.is_this_machine(boot_id):
            raise GpuyardError(
                f"{directory} has the leases of the machine {self.machine.name}, and this is "
                f"{os.uname().nodename}. If machines share a disk, each needs its own directory: name "
                "another one with GPUYARD_SHARE_DIR. If it is the same machine under another name, run: "
                "gpuyard share setup --move"
            )

    def write(self, directory: Path) -> None:
        text = json.dumps(asdict(self), indent=1) + "\n"
        write_text(config_file(directory), text, mode=0o644)


def share_directory() -> Path:
    """Return the directory of the share that this process uses."""
    named = os.environ.get("GPUYARD_SHARE_DIR")
    if named:
        return expand_home(named).absolute()
    if is_set_up(MACHINE_DIRECTORY):
        return MACHINE_DIRECTORY
    return own_directory()


def own_directory() -> Path:
    """Return the directory of a personal share, which needs neither root nor a service.

    It is named after the machine, because machines with a shared home each have their own GPUs.
    """
    return home() / "share" / os.uname().nodename


def setup_directory() -> Path:
    """Return the directory in which `share setup` creates a share."""
    if os.environ.get("GPUYARD_SHARE_DIR"):
        return share_directory()
    return MACHINE_DIRECTORY if os.geteuid() == 0 else own_directory()


def is_set_up(directory: Path) -> bool:
    """Return whether a directory has a share; False if this user cannot enter it."""
    return os.path.exists(config_file(directory))  # noqa: PTH110 - Path.exists raises PermissionError


def config_file(directory: Path) -> Path:
    return directory / _FILE


@contextlib.contextmanager
def lock_config(directory: Path) -> Iterator[None]:
    """Hold the lock under which the configuration is read and changed, so that no change is lost."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(directory / _LOCK, flags, 0o600)
    except OSError as error:
        raise GpuyardError(
            f"{directory} cannot be changed ({error.strerror}); run this as its owner"
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_config(directory: Path) -> ShareConfig:
    """Read the configuration that `share setup` wrote."""
    path = config_file(directory)
    try:
        return _parse_config(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise GpuyardError(
            f"{directory} is not set up to share GPUs; run: gpuyard share setup"
        ) from None
    # UserMistake is what `Rules` raises for values that it does not allow
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
            f"{path} cannot be read ({error}); write it again with: gpuyard share setup"
        ) from error


def _parse_config(document: dict[str, Any]) -> ShareConfig:
    """Build the configuration from JSON; ignore keys of a later version."""
    names = {part.name for part in fields(ShareConfig)}
    values = {
        **{name: value for name, value in document.items() if name in names},
        "gpus": tuple(SharedGpu(**gpu) for gpu in document["gpus"]),
        "rates": {int(gpus): float(rate) for gpus, rate in document.get("rates", {}).items()},
        "rules": Rules.from_document(document.get("rules", {})),
        "machine": MachineIdentity(**document["machine"]) if document.get("machine") else None,
    }
    for name in ("grace_seconds", "notice_seconds"):
        if name in values:
            values[name] = float(values[name])
    for gpu in values["gpus"]:
        texts = (gpu.name, gpu.vendor, gpu.catalog or "", gpu.device or "")
        if not (
            isinstance(gpu.index, int)
            and isinstance(gpu.memory_bytes, int | None)
            and all(isinstance(text, str) and "\0" not in text for text in texts)
        ):
            raise TypeError(f"{gpu} is not a GPU")
    for name in ("admin_group", "scheduler", "isolation"):
        if not isinstance(values.get(name, ""), str):
            raise TypeError(f"{values[name]!r} is not valid for {name}")
    return ShareConfig(**values)
