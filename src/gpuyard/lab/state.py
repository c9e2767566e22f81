"""What is known of labs between two commands: a file each, and a lock that its owner holds.

The file is written before the first namespace is made, so whatever exists is claimed by one. A lab that
is half made, or made for one process only, belongs to who holds its lock; when the lock is free, it is
an orphan. A lab that `up` has finished belongs to nobody and stays.

Labs are made as root, and what a file says is removed: it counts only if nobody else can have written it.
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
from gpuyard.files import make_parent, write_text
from gpuyard.lab.network import check_ours, present
from gpuyard.lab.plan import LabPlan, NodePlan, check_name, is_name

LabStage = Literal["making", "ready", "removing"]
Health = Literal["up", "damaged", "gone", "orphan", "being made"]
_MOST_CHARACTERS = 1_000_000


class UnreadableState(GpuyardError):
    """The file of a lab is damaged, so nobody knows any more which namespaces are its own."""


@dataclass(frozen=True)
class LabState:
    """One lab as its file says."""

    plan: LabPlan
    namespaces: tuple[str, ...]
    stage: LabStage
    owned: bool  # True: it lives as long as the process that holds its lock
    made_at: str

    def with_stage(self, stage: LabStage) -> "LabState":
        return replace(self, stage=stage)


def directory() -> Path:
    return files.home() / "labs"


def read(name: str) -> LabState | None:
    path = _file(name)
    try:
        document = json.loads(_own_text(path))
        found = _from_document(document)
        if found.plan.name != name:
            raise ValueError(f"it is of a lab called {found.plan.name!r}")
        check_ours(found.plan, found.namespaces)
        return found
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnreadableState(
            f"{path} can't be read as the state of a lab ({error}); nothing was changed. Put it "
            f"aside with: gpuyard lab down --name {name}"
        ) from error


def write(state: LabState) -> None:
    write_text(
        make_parent(_file(state.plan.name)), json.dumps(asdict(state), indent=1) + "\n", mode=0o644
    )


def forget(name: str) -> None:
    _file(name).unlink(missing_ok=True)
    _owner_file(name).unlink(missing_ok=True)


def put_aside(name: str) -> Path:
    """Keep an unreadable file out of the way, for whoever wants to look into it."""
    aside = _file(name).with_suffix(".unreadable")
    _file(name).replace(aside)
    _owner_file(name).unlink(missing_ok=True)
    return aside


def names() -> list[str]:
    return sorted(path.stem for path in directory().glob("*.json") if is_name(path.stem))


def health(state: LabState) -> Health:
    """Whether it can be used; call it under `changing`."""
    if (state.owned or state.stage != "ready") and not is_held(state.plan.name):
        return "orphan"
    if state.stage == "making":
        return "being made"
    there = len(present(state.namespaces))
    if there == len(state.namespaces):
        return "up"
    return "damaged" if there else "gone"  # a reboot takes all of them


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """One process at a time looks at states and changes them; it is held for moments only."""
    with _locked(directory() / "changing.lock", fcntl.LOCK_EX):
        yield


def own(name: str) -> int:
    """Take the lab's lock; the kernel gives it back with the process, however that ends."""
    return _take(_owner_file(name), fcntl.LOCK_EX | fcntl.LOCK_NB)


def share(name: str) -> int:
    """Hold the lab against removal beside others that do."""
    return _take(_owner_file(name), fcntl.LOCK_SH | fcntl.LOCK_NB)


def is_held(name: str) -> bool:
    try:
        os.close(own(name))
    except BlockingIOError:
        return True
    return False


def _file(name: str) -> Path:
    check_name(name)
    return directory() / f"{name}.json"


def _owner_file(name: str) -> Path:
    check_name(name)
    return directory() / f"{name}.owner"


def _own_text(path: Path) -> str:
    """What a file says that nobody but this user can have written."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, encoding="utf-8") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("it is not a plain file")
        if status.st_uid != os.geteuid():
            raise ValueError(f"it belongs to another user, with the id {status.st_uid}")
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise ValueError("other users may write to it")
        return file.read(_MOST_CHARACTERS)


def _own_directory(path: Path) -> None:
    """Make it, or raise where others could put files into it."""
    path.mkdir(mode=0o755, parents=True, exist_ok=True)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise GpuyardError(
            f"{path} is not a directory; remove it, or set GPUYARD_HOME to another place"
        )
    if status.st_uid != os.geteuid():
        raise GpuyardError(
            f"{path} belongs to another user, with the id {status.st_uid}: labs are not kept where others "
            "can write; set GPUYARD_HOME to a directory of your own"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise GpuyardError(
            f"other users may write to {path}: labs are not kept there; take that right away with: "
            f"chmod go-w {path}"
        )


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    descriptor = _take(path, how)
    try:
        yield
    finally:
        os.close(descriptor)


def _take(path: Path, how: int) -> int:
    try:
        _own_directory(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError as error:
        raise GpuyardError(f"{path} can't be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, how)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _from_document(document: dict[str, Any]) -> LabState:
    plan = dict(document["plan"])
    nodes = tuple(NodePlan(**{**node, "cores": tuple(node["cores"])}) for node in plan["nodes"])
    if [node.name for node in nodes] != [f"node{index}" for index in range(len(nodes))]:
        raise ValueError("its nodes have other names than a lab's")
    if document["stage"] not in get_args(LabStage):
        raise ValueError(f"it has no stage called {document['stage']!r}")
    return LabState(
        plan=LabPlan(**{**plan, "nodes": nodes}),
        namespaces=tuple(document["namespaces"]),
        stage=document["stage"],
        owned=bool(document["owned"]),
        made_at=document["made_at"],
    )
