"""One control group per lease, in which the devices of all other GPUs are closed.

The group is a child of the one in which its process was, so that limits that are set there still apply. Only root can
move a process, so none can leave its group by itself.
"""

import contextlib
import errno
import json
import os
import signal
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.files import write_text
from gpuyard.share import processes
from gpuyard.share.models import DeviceNumber

V1, V2 = "cgroup1", "cgroup2"
_KINDS = (V2, V1)
_PREFIX = "gpuyard-lease-"
_RECORDS = "isolated"
_PROCESSES = "cgroup.procs"
_KILL = "cgroup.kill"
_KILL_ROUNDS = 200  # each hits at least some of the processes


class Cgroups:
    """The control groups of a share's leases. A file per lease records where its group is, until that is removed."""

    def __init__(self, directory: Path) -> None:
        self._records = directory / _RECORDS
        self._has_records = self._records.is_dir()

    def lease_ids(self) -> set[str]:
        """Return the leases that have a control group."""
        try:
            return set(os.listdir(self._records)) if self._has_records else set()  # noqa: PTH208
        except OSError:
            return set()

    def enclose(
        self,
        lease_id: str,
        pid: int,
        kind: str,
        *,
        own: Sequence[DeviceNumber],
        others: Sequence[DeviceNumber],
        process_start: int,
    ) -> None:
        """Move a process into a new group; every process that it starts from now on is in it, too."""
        try:
            _check_same(pid, process_start)
            group = _find_parent(pid, kind) / f"{_PREFIX}{lease_id}"
            if not self._has_records:
                self._records.mkdir(exist_ok=True)
                self._records.chmod(0o755)  # `who` shows everyone which leases are isolated
                self._has_records = True
            self._write(lease_id, _GroupRecord(str(group), kind, list(own), [_identify(pid)]))
            group.mkdir()
            _close_devices(group, kind, others)
            _move(group, pid, process_start)
        except OSError as error:
            raise GpuyardError(
                f"the devices of other GPUs cannot be closed to this lease ({error.strerror}); an admin "
                "can turn this off with: gpuyard share setup --no-isolate"
            ) from error

    def add(self, lease_id: str, pid: int, process_start: int) -> None:
        """Move a shell into the group of a lease, if it has one."""
        record = self._read(lease_id)
        if record is None:
            return
        try:
            self._write(lease_id, replace(record, guests=[*record.guests, _identify(pid)]))
            _move(Path(record.group), pid, process_start)
        except OSError as error:
            raise GpuyardError(
                f"process {pid} cannot be moved into the control group of lease {lease_id}: {error}"
            ) from error

    def find_holders(self, lease_id: str) -> list[int]:
        """Return the processes in the group of a lease that may use its GPUs.

        Call it only if the lease is over unless there are any. Its launcher and shells do not use GPUs themselves, so
        they count only if they have a device open. If only they are left, they cannot open one from now on.
        """
        record = self._read(lease_id)
        if record is None:
            return []
        from gpuyard.share.devices import has_device_open  # only isolated leases need it

        members = _read_members(record)
        guests = {pid for pid in members if _identify(pid) in record.guests}
        if guests and len(guests) == len(members):
            self.close(lease_id)
        return [pid for pid in members if pid not in guests or has_device_open(pid, record.own)]

    def close(self, lease_id: str) -> None:
        """Close the devices of a lease to its group. Files that are open already stay open."""
        record = self._read(lease_id)
        if record is not None and not record.closed:
            with contextlib.suppress(OSError, GpuyardError):
                _close_devices(Path(record.group), record.kind, record.own)
                self._write(lease_id, replace(record, closed=True))

    def kill(self, lease_id: str) -> None:
        """Kill the processes in the group of a lease that may use its GPUs, even if they keep forking."""
        record = self._read(lease_id)
        for _ in range(_KILL_ROUNDS if record else 0):
            holders = self.find_holders(lease_id)
            if record is None or not holders:
                return
            if len(holders) == len(_read_members(record)):  # there is no shell to spare
                with contextlib.suppress(OSError):  # cgroup v1 and old kernels have no such file
                    Path(record.group, _KILL).write_text("1", encoding="ascii")
            for pid in holders:
                with contextlib.suppress(OSError):
                    _kill_member(pid, record)

    def sweep(self, ended: Collection[str]) -> None:
        """Remove the groups of leases that have ended; close all GPUs in those that are not empty yet."""
        for lease_id in ended:
            record = self._read(lease_id)
            if record is None:
                continue
            try:
                Path(record.group).rmdir()
            except FileNotFoundError:
                pass
            except OSError:
                self.close(lease_id)
                continue
            with contextlib.suppress(OSError):
                (self._records / lease_id).unlink()

    def _read(self, lease_id: str) -> "_GroupRecord | None":
        if lease_id not in self.lease_ids():
            return None
        try:
            document = json.loads((self._records / lease_id).read_text(encoding="utf-8"))
            return _GroupRecord(
                **{
                    **document,
                    **{name: [*map(tuple, document[name])] for name in ("own", "guests")},
                }
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _write(self, lease_id: str, record: "_GroupRecord") -> None:
        write_text(self._records / lease_id, json.dumps(asdict(record)), mode=0o644)


@dataclass(frozen=True)
class _GroupRecord:
    """The control group of a lease."""

    group: str
    kind: str
    own: list[DeviceNumber]
    """Devices of the lease's GPUs."""
    guests: list[tuple[int, int]]
    """PID and start time of the launcher and of the shells that were moved into the group."""
    closed: bool = False
    """True if the lease's own devices are closed, too."""


def _identify(pid: int) -> tuple[int, int]:
    return pid, processes.start_time(pid)


def _read_members(record: _GroupRecord) -> list[int]:
    """Return the processes in a group; 0 stands for one that this process cannot see."""
    try:
        words = Path(record.group, _PROCESSES).read_text(encoding="ascii").split()
    except OSError:
        return []
    return [int(word) for word in words if word != "0"]


def _kill_member(pid: int, record: _GroupRecord) -> None:
    handle = os.pidfd_open(pid)
    try:
        # check again now that the handle is open: from here on the PID cannot become another process's
        if pid in _read_members(record):
            signal.pidfd_send_signal(handle, signal.SIGKILL)
    finally:
        os.close(handle)


def _move(group: Path, pid: int, process_start: int) -> None:
    """Move a process into a group, and never another one that got its PID."""
    _check_same(pid, process_start)
    (group / _PROCESSES).write_text(str(pid), encoding="ascii")
    try:
        _check_same(pid, process_start)
    except ProcessLookupError:  # it ended at this moment, and another one may have been moved
        with contextlib.suppress(OSError):
            (group.parent / _PROCESSES).write_text(str(pid), encoding="ascii")
        raise


def _check_same(pid: int, process_start: int) -> None:
    if not process_start or processes.start_time(pid) != process_start:
        raise ProcessLookupError(errno.ESRCH, f"process {pid} has ended")


def find_usable_kind() -> str:
    """Return cgroup v2 if closing devices with it works here, otherwise v1; raise if neither works."""
    from gpuyard.share.devices import fake_device_number

    reason = "no control groups are mounted"
    for kind in _KINDS:
        group = None
        try:
            group = _find_parent(os.getpid(), kind) / f"{_PREFIX}try-{os.getpid()}"
            group.mkdir()
            _close_devices(group, kind, [fake_device_number(0)])
        except OSError as error:
            reason = error.strerror or reason
            continue
        finally:
            if group is not None:
                with contextlib.suppress(OSError):
                    group.rmdir()
        return kind
    raise MissingRequirement(
        f"devices cannot be closed to other leases here ({reason}): that needs root, and cgroup v2 with BPF "
        "or the devices controller of cgroup v1. With --no-isolate, `gpuyard audit` is the guard"
    )


def _close_devices(group: Path, kind: str, devices: Sequence[DeviceNumber]) -> None:
    if kind == V2:
        from gpuyard.share.device_filter import attach_filter

        attach_filter(str(group), devices)
        return
    for major, minor in devices:
        (group / "devices.deny").write_text(f"c {major}:{minor} rwm", encoding="ascii")


def _find_parent(pid: int, kind: str) -> Path:
    """Return the group of a process or, if that belongs to a lease, the group around it.

    A group that systemd delegated to a user is skipped: its user could move processes within it, out of a lease.
    """
    inside, mount = _group_of(pid, kind), _mount_point(kind)
    group = mount / inside.relative_to("/")
    while group != mount and (
        group.name.startswith(_PREFIX) or group.stat().st_uid or (group / _PROCESSES).stat().st_uid
    ):
        group = group.parent
    return group


def _mount_point(kind: str) -> Path:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, mount, type_, options = line.split()[:4]
        if (type_ == "cgroup2" and kind == V2) or (
            type_ == "cgroup" and kind == V1 and "devices" in options.split(",")
        ):
            return Path(mount)
    raise FileNotFoundError(0, f"{kind} is not mounted")


def _group_of(pid: int, kind: str) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, path = line.split(":", 2)
        if (number == "0" and kind == V2) or (kind == V1 and "devices" in controllers.split(",")):
            if "/.." in path:  # outside the namespace of this process
                break
            return Path(path)
    raise FileNotFoundError(0, f"the {kind} group of process {pid} is not visible here")
