"""The state of labs between two commands: a file for each lab, and a lock that its owner holds.

The file is written before the first namespace is created, so every namespace has a record. An unfinished
lab, or one for a single process, belongs to the process that holds its lock; if the lock is free, the lab
is an orphan. A lab that `up` has finished has no owner and stays.

Labs are created as root, and gpuyard removes the namespaces that a file lists. So a file counts only if
no other user can have written it.
"""

import contextlib
import fcntl
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from gpuyard import files
from gpuyard.errors import GpuyardError
from gpuyard.files import create_parent, write_text
from gpuyard.lab.network import check_namespace_names, existing_namespaces
from gpuyard.lab.plan import LabPlan, NodePlan, check_name, is_name

LabStage = Literal["making", "ready", "removing"]
Health = Literal["up", "damaged", "gone", "orphan", "being made"]
_MAX_CHARACTERS = 1_000_000


class UnreadableState(GpuyardError):
    """The state file of a lab is damaged, so its namespaces are unknown."""


@dataclass(frozen=True)
class LabState:
    """The recorded state of one lab."""

    plan: LabPlan
    namespaces: tuple[str, ...]
    stage: LabStage
    owned: bool  # True: the lab ends with the process that holds its lock
    made_at: str

    def with_stage(self, stage: LabStage) -> "LabState":
        return replace(self, stage=stage)


def directory() -> Path:
    return files.home() / "labs"


def read(name: str) -> LabState | None:
    path = _file(name)
    try:
        lab_state = _from_document(json.loads(_read_own_file(path)))
        if lab_state.plan.name != name:
            raise ValueError(f"it belongs to a lab called {lab_state.plan.name!r}")
        check_namespace_names(lab_state.plan, lab_state.namespaces)
        return lab_state
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableState(
            f"{path} is not a readable lab state ({error}); nothing was changed. Set it aside "
            f"with: gpuyard lab down --name {name}"
        ) from error


def write(state: LabState) -> None:
    write_text(
        create_parent(_file(state.plan.name)),
        json.dumps(asdict(state), indent=1) + "\n",
        mode=0o644,
    )


def forget(name: str) -> None:
    _file(name).unlink(missing_ok=True)
    _owner_file(name).unlink(missing_ok=True)


def set_aside(name: str) -> Path:
    """Rename an unreadable state file, so that it can be inspected, and return its new path."""
    new_path = _file(name).with_suffix(".unreadable")
    _file(name).replace(new_path)
    _owner_file(name).unlink(missing_ok=True)
    return new_path


def names() -> list[str]:
    return sorted(path.stem for path in directory().glob("*.json") if is_name(path.stem))


def health(state: LabState) -> Health:
    """Return whether the lab is usable; call it under `changing`."""
    if (state.owned or state.stage != "ready") and not is_held(state.plan.name):
        return "orphan"
    if state.stage == "making":
        return "being made"
    existing = len(existing_namespaces(state.namespaces))
    if existing == len(state.namespaces):
        return "up"
    return "damaged" if existing else "gone"  # a reboot removes all of them


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Let only this process read and change states; keep the block short."""
    with _locked(directory() / "changing.lock", fcntl.LOCK_EX):
        yield


def lock_exclusively(name: str) -> int:
    """Lock the lab for its owner; the kernel frees the lock when the process ends."""
    return _lock(_owner_file(name), fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_shared(name: str) -> int:
    """Lock the lab against removal; several processes can do so at once."""
    return _lock(_owner_file(name), fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_held(name: str) -> bool:
    try:
        os.close(lock_exclusively(name))
    except BlockingIOError:
        return True
    return False


def _file(name: str) -> Path:
    check_name(name)
    return directory() / f"{name}.json"


def _owner_file(name: str) -> Path:
    check_name(name)
    return directory() / f"{name}.owner"


def _read_own_file(path: Path) -> str:
    """Return the content of a file that only this user can have written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a plain file")
        if status.st_uid != os.geteuid():
            raise ValueError(f"it belongs to another user, with the id {status.st_uid}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("other users may write to it")
        return file.read(_MAX_CHARACTERS)


def _create_own_directory(path: Path) -> None:
    """Create the directory; raise GpuyardError if others could write to it."""
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise GpuyardError(
            f"{path} is not a directory; remove it, or set GPUYARD_HOME to another directory"
        )
    if status.st_uid != os.geteuid():
        raise GpuyardError(
            f"{path} belongs to another user, with the id {status.st_uid}, so labs cannot be kept there; "
            "set GPUYARD_HOME to your own directory"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise GpuyardError(
            f"other users may write to {path}, so labs cannot be kept there; fix it with: "
            f"chmod go-w {path}"
        )


@contextlib.contextmanager
def _locked(path: Path, operation: int) -> Iterator[None]:
    descriptor = _lock(path, operation)
    try:
        yield
    finally:
        os.close(descriptor)


def _lock(path: Path, operation: int) -> int:
    try:
        _create_own_directory(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise GpuyardError(f"{path} is not writable: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _from_document(document: dict[str, Any]) -> LabState:
    plan = dict(document["plan"])
    nodes = tuple(NodePlan(**{**node, "cores": tuple(node["cores"])}) for node in plan["nodes"])
    if [node.name for node in nodes] != [f"node{index}" for index in range(len(nodes))]:
        raise ValueError("its node names are not those of a lab")
    if document["stage"] not in get_args(LabStage):
        raise ValueError(f"its stage {document['stage']!r} is unknown")
    return LabState(
        plan=LabPlan(**{**plan, "nodes": nodes}),
        namespaces=tuple(document["namespaces"]),
        stage=document["stage"],
        owned=bool(document["owned"]),
        made_at=document["made_at"],
    )
