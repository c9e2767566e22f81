"""Where a process asks: at the store itself if it owns it, else at the service that does."""

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, TypeVar

from gpuyard.errors import GpuyardError
from gpuyard.share.service.caller import this_process
from gpuyard.share.store.broker import Broker
from gpuyard.share.store.config import (
    ShareConfig,
    config_file,
    own_directory,
    read_config,
    share_directory,
)
from gpuyard.share.store.lease import Lease, LeaseRequest
from gpuyard.share.turns.calendar import Reservation
from gpuyard.share.turns.queue import ShareState, Turn
from gpuyard.share.turns.reservations import Wish
from gpuyard.share.turns.rules import Rules
from gpuyard.share.watch.gpus import Reading, gpu_source

T = TypeVar("T")


class Desk(Protocol):
    """The operations, as whoever calls them sees them."""

    config: ShareConfig

    def ask(self, request: LeaseRequest) -> tuple[Turn, int]: ...
    def claim(self, id_: str) -> Turn: ...
    def leave(self, id_: str) -> None: ...
    def enclose(self, id_: str, pid: int) -> None: ...
    def finish(self, id_: str, *, childless: bool) -> bool: ...
    def release(self, id_: str) -> Lease: ...
    def state(self) -> ShareState: ...
    def history(self) -> list[Lease]: ...
    def reserve(self, wish: Wish) -> Reservation: ...
    def cancel(self, id_: str) -> Reservation: ...
    def drain(self, gpus: tuple[int, ...], until: float | None) -> Reservation: ...
    def set_rules(self, rules: Rules) -> None: ...
    def resume(self) -> list[Reservation]: ...
    def close(self) -> None: ...


class OwnDesk:
    """At the store itself."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.broker = Broker(directory, read_only=read_only)
        self.config = self.broker.config
        self._caller = this_process()

    def ask(self, request: LeaseRequest) -> tuple[Turn, int]:
        return self.broker.ask(self._caller, request)

    def claim(self, id_: str) -> Turn:
        return self.broker.claim(self._caller, id_)

    def enclose(self, id_: str, pid: int) -> None:
        self.broker.enclose(self._caller, id_, pid)

    def leave(self, id_: str) -> None:
        self.broker.leave(self._caller, id_)

    def finish(self, id_: str, *, childless: bool) -> bool:
        return self.broker.finish(self._caller, id_, childless=childless)

    def release(self, id_: str) -> Lease:
        self.broker.locks.let_go(id_)  # this process may be one of the lease's
        return self.broker.release(self._caller, id_)

    def state(self) -> ShareState:
        return self.broker.state()

    def history(self) -> list[Lease]:
        return self.broker.history()

    def reserve(self, wish: Wish) -> Reservation:
        return self.broker.reserve(self._caller, wish)

    def cancel(self, id_: str) -> Reservation:
        return self.broker.cancel(self._caller, id_)

    def set_rules(self, rules: Rules) -> None:
        self.broker.set_rules(self._caller, rules)

    def drain(self, gpus: tuple[int, ...], until: float | None) -> Reservation:
        return self.broker.drain(self._caller, gpus, until)

    def resume(self) -> list[Reservation]:
        return self.broker.resume(self._caller)

    def close(self) -> None:
        self.broker.close()


class ServiceDesk:
    """At the service that runs as the store's owner, and is told by the kernel who calls."""

    def __init__(self, directory: Path) -> None:
        from gpuyard.share.service import wire  # an own store needs no sockets

        self._wire = wire
        self.config = read_config(directory)
        self._directory = directory

    def ask(self, request: LeaseRequest) -> tuple[Turn, int]:
        answer, locks = self._wire.call(self._directory, "ask", request=request.document())
        if len(locks) != 1:
            raise GpuyardError("the lease service gave no lock; it may be of another version")
        with self._wire.understood(self._directory):
            return self._wire.read_turn(answer), locks[0]

    def claim(self, id_: str) -> Turn:
        return self._read(self._wire.read_turn, "claim", id=id_)

    def enclose(self, id_: str, pid: int) -> None:
        self._call("enclose", id=id_, pid=pid)

    def leave(self, id_: str) -> None:
        self._call("leave", id=id_)

    def finish(self, id_: str, *, childless: bool) -> bool:
        return bool(self._call("finish", id=id_, childless=childless))

    def release(self, id_: str) -> Lease:
        return self._read(Lease.from_document, "release", id=id_)

    def state(self) -> ShareState:
        return self._read(self._wire.read_state, "state")

    def history(self) -> list[Lease]:
        """In several messages: it can be longer than one."""
        self.state()  # closes what is dead
        found: list[Lease] = []
        while page := self._read(_leases, "history", after=found[-1].number if found else 0):
            found += page
        return found

    def reserve(self, wish: Wish) -> Reservation:
        return self._read(Reservation.from_document, "reserve", wish=asdict(wish))

    def cancel(self, id_: str) -> Reservation:
        return self._read(Reservation.from_document, "cancel", id=id_)

    def set_rules(self, rules: Rules) -> None:
        self._call("set_rules", rules=rules.document())

    def drain(self, gpus: tuple[int, ...], until: float | None) -> Reservation:
        return self._read(Reservation.from_document, "drain", gpus=gpus, until=until)

    def resume(self) -> list[Reservation]:
        return self._read(_reservations, "resume")

    def close(self) -> None:
        """Nothing is open between calls."""

    def _read(self, read: Callable[[Any], T], operation: str, **values: object) -> T:
        answer = self._call(operation, **values)
        with self._wire.understood(self._directory):
            return read(answer)

    def _call(self, operation: str, **values: object) -> Any:
        return self._wire.call(self._directory, operation, **values)[0]


def _leases(documents: list[dict[str, Any]]) -> list[Lease]:
    return [Lease.from_document(one) for one in documents]


def _reservations(documents: list[dict[str, Any]]) -> list[Reservation]:
    return [Reservation.from_document(one) for one in documents]


def open_desk() -> Desk:
    """To lease and release."""
    directory = share_directory()
    if not config_file(directory).exists():
        if directory != own_directory():
            read_config(directory)  # says how to set one up
        from gpuyard.share.setup import set_up

        set_up(directory)
    return OwnDesk(directory) if is_ours(directory) else ServiceDesk(directory)


def open_to_look() -> Desk:
    """To look only: works on a full disk."""
    directory = share_directory()
    if not is_ours(directory):
        return ServiceDesk(directory)
    with contextlib.suppress(GpuyardError):
        return OwnDesk(directory)
    return OwnDesk(directory, read_only=True)


def read_gpus(desk: Desk) -> Mapping[int, Reading]:
    """How busy the GPUs are; whoever may write it down does."""
    readings = gpu_source(share_directory(), desk.config).read()
    if isinstance(desk, OwnDesk):
        desk.broker.record_utilisation(readings)
    return readings


def owned_directory() -> Path:
    """The share that this user administers; raises where it is another's."""
    directory = share_directory()
    if not is_ours(directory):
        raise GpuyardError(f"only the owner of {directory} can do this; run it as they")
    return directory


def is_ours(directory: Path) -> bool:
    """Its owner writes it, and nobody else: not even root, whose files its owner could not use."""
    try:
        return directory.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        read_config(directory)  # says how to set one up
        raise
