"""One control group a lease, below the one where its process was, so that limits which are set there still hold. In it
the devices of all other GPUs are closed. Only root can move a process, so none can leave it by itself."""

import contextlib
import json
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.share.isolation.devices import DeviceNumber, device_number

V1, V2 = "cgroup1", "cgroup2"
_TRIED = (V2, V1)
_PREFIX = "gpuyard-lease-"
_RECORDS = "isolated"
_PROCESSES = "cgroup.procs"


class Groups:
    """Of a share's leases; a file for each says where its group is, until that is gone."""

    def __init__(self, directory: Path) -> None:
        self._records = directory / _RECORDS
        self._used = self._records.is_dir()

    def ids(self) -> set[str]:
        """Leases that have one."""
        try:
            return set(os.listdir(self._records)) if self._used else set()  # noqa: PTH208
        except OSError:
            return set()

    def enclose(
        self,
        id_: str,
        pid: int,
        kind: str,
        *,
        own: Sequence[DeviceNumber],
        others: Sequence[DeviceNumber],
    ) -> None:
        """Put a process into a group of its own; all that it starts from now on is in it, too."""
        try:
            group = _home(pid, kind) / f"{_PREFIX}{id_}"
            if not self._used:
                self._records.mkdir(exist_ok=True)
                self._records.chmod(0o755)  # `who` tells everybody which leases are isolated
                self._used = True
            record = {"group": str(group), "kind": kind, "own": own}
            (self._records / id_).write_text(json.dumps(record), encoding="utf-8")
            group.mkdir()
            _close_devices(group, kind, others)
            (group / _PROCESSES).write_text(str(pid), encoding="ascii")
        except OSError as error:
            raise GpuyardError(
                f"the devices of other GPUs can't be closed to this lease ({error.strerror}); an admin "
                "can go on without that: gpuyard share setup --no-isolate"
            ) from error

    def add(self, id_: str, pid: int) -> None:
        """Another process into the group of a lease, where it has one."""
        if id_ not in self.ids():
            return
        try:
            record = json.loads((self._records / id_).read_text(encoding="utf-8"))
            Path(record["group"], _PROCESSES).write_text(str(pid), encoding="ascii")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise GpuyardError(
                f"process {pid} can't be put into the control group of lease {id_}: {error}"
            ) from error

    def sweep(self, ended: Collection[str]) -> None:
        """Remove those of leases that have ended; in one that is not empty yet all GPUs are closed."""
        for id_ in ended:
            path = self._records / id_
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = json.loads(path.read_text(encoding="utf-8"))
                group = Path(record["group"])
                try:
                    group.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:
                    own = [(int(major), int(minor)) for major, minor in record["own"]]
                    if own:
                        _close_devices(group, record["kind"], own)
                        path.write_text(json.dumps({**record, "own": []}), encoding="utf-8")
                    continue
                path.unlink()


def usable_kind() -> str:
    """By trying it: cgroup v2 if that works here, else v1; raises where neither does."""
    why = "no control groups are mounted"
    for kind in _TRIED:
        group = None
        try:
            group = _home(os.getpid(), kind) / f"{_PREFIX}try-{os.getpid()}"
            group.mkdir()
            _close_devices(group, kind, [device_number(0)])
        except OSError as error:
            why = error.strerror or why
            continue
        finally:
            if group is not None:
                with contextlib.suppress(OSError):
                    group.rmdir()
        return kind
    raise MissingRequirement(
        f"devices can't be closed to others here ({why}): that needs root, and cgroup v2 with BPF or the "
        "devices of cgroup v1. With --no-isolate, `gpuyard audit` is the guard"
    )


def _close_devices(group: Path, kind: str, devices: Sequence[DeviceNumber]) -> None:
    if kind == V2:
        from gpuyard.share.isolation.device_program import attach

        attach(str(group), devices)
        return
    for major, minor in devices:
        (group / "devices.deny").write_text(f"c {major}:{minor} rwm", encoding="ascii")


def _home(pid: int, kind: str) -> Path:
    """The group where a process is; of one on a lease, the one around that.

    Not below one that was given to a user, as systemd does: they may move processes within it, also out of a lease's.
    """
    inside, mount = _group_of(pid, kind), _mount(kind)
    group = mount / inside.relative_to("/")
    while group != mount and (
        group.name.startswith(_PREFIX) or group.stat().st_uid or (group / _PROCESSES).stat().st_uid
    ):
        group = group.parent
    return group


def _mount(kind: str) -> Path:
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, place, type_, options = line.split()[:4]
        if (type_ == "cgroup2" and kind == V2) or (
            type_ == "cgroup" and kind == V1 and "devices" in options.split(",")
        ):
            return Path(place)
    raise FileNotFoundError(0, f"no {kind} is mounted")


def _group_of(pid: int, kind: str) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines():
        number, controllers, path = line.split(":", 2)
        if (number == "0" and kind == V2) or (kind == V1 and "devices" in controllers.split(",")):
            if "/.." in path:  # outside of the namespace that this process sees
                break
            return Path(path)
    raise FileNotFoundError(0, f"process {pid} is in no {kind} that can be seen here")
