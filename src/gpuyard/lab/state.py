"""What is known of labs between two commands: a file each, and a lock that its owner holds.

The file is written before the first namespace is made, so whatever exists is claimed by one. A lab that
is half made, or made for one process only, belongs to who holds its lock; when the lock is free, it is
an orphan. A lab that `up` has finished belongs to nobody and stays.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from gpuyard import paths
from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.lab.network import present
from gpuyard.lab.plan import LabPlan, NodePlan

Stage = Literal["making", "ready", "removing"]
Health = Literal["up", "damaged", "gone", "orphan", "being made"]


class UnreadableState(GpuyardError):
    """The file of a lab is damaged, so nobody knows any more which namespaces are its own."""


@dataclass(frozen=True)
class LabState:
    """One lab as its file says."""

    plan: LabPlan
    namespaces: tuple[str, ...]
    stage: Stage
    owned: bool  # True: it lives as long as the process that holds its lock
    made_at: str

    def with_stage(self, stage: Stage) -> "LabState":
        return replace(self, stage=stage)


def directory() -> Path:
    return paths.home() / "labs"


def read(name: str) -> LabState | None:
    try:
        document = json.loads(_file(name).read_text(encoding="utf-8"))
        return _from_document(document)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UnreadableState(
            f"{_file(name)} can't be read as the state of a lab ({error}); nothing was changed. Put it "
            f"aside with: gpuyard lab down --name {name}"
        ) from error


def write(state: LabState) -> None:
    write_text(_file(state.plan.name), json.dumps(asdict(state), indent=1) + "\n")


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
    return sorted(path.stem for path in directory().glob("*.json"))


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
    return directory() / f"{name}.json"


def _owner_file(name: str) -> Path:
    return directory() / f"{name}.owner"


@contextlib.contextmanager
def _locked(path: Path, how: int) -> Iterator[None]:
    descriptor = _take(path, how)
    try:
        yield
    finally:
        os.close(descriptor)


def _take(path: Path, how: int) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
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
    return LabState(
        plan=LabPlan(**{**plan, "nodes": nodes}),
        namespaces=tuple(document["namespaces"]),
        stage=document["stage"],
        owned=bool(document["owned"]),
        made_at=document["made_at"],
    )
