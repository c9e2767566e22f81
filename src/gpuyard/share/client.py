"""Clients of a share. The owner of the store uses the broker directly; everyone else calls the service of the owner.

`Client` declares every operation once. Both clients and the service use these declarations.
"""

import contextlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from gpuyard.errors import GpuyardError
from gpuyard.share.config import (
    Rules,
    ShareConfig,
    is_set_up,
    own_directory,
    read_config,
    share_directory,
)
from gpuyard.share.models import (
    Lease,
    LeaseRequest,
    QueueStatus,
    Reservation,
    ReservationRequest,
    ShareState,
    decode_flag,
    decode_id,
    decode_indices,
    decode_number,
    decode_optional_time,
    decode_pid,
    decode_time,
)
from gpuyard.share.schedule import ScheduleAnswer, decode_announcements, decode_runner

if TYPE_CHECKING:
    from gpuyard.share.broker import Broker

PATIENCE_SECONDS = 10.0  # a restart takes about a second, and more on a busy machine
P = ParamSpec("P")
R = TypeVar("R")
Decoder = Callable[[Any], Any]


class Operation(Generic[P, R]):
    """A method of the broker that clients can call, and the decoders that carry it over the socket.

    `bind` returns the method of a broker, so that clients of the service need not import brokers. `arguments` has a
    decoder for each parameter of the method, in order. An operation that `sends_lock` returns its result and the
    descriptor of a lock.

    A client waits for a service that is away if the operation `is_patient`: the others are repeated or not needed. If
    the service went away before it answered, the client repeats only an operation that `is_repeatable`, which has the
    same effect and result if it is performed twice.
    """

    def __init__(
        self,
        bind: "Callable[[Broker], Callable[P, R]]",
        *,
        arguments: Mapping[str, Decoder] | None = None,
        result: Decoder,
        sends_lock: bool = False,
        is_repeatable: bool = True,
        is_patient: bool = True,
    ) -> None:
        self.bind = bind
        self.name = ""
        self.arguments = arguments or {}
        self.result = result
        self.sends_lock = sends_lock
        self.is_repeatable = is_repeatable
        self.is_patient = is_patient

    def __set_name__(self, owner: type["Client"], name: str) -> None:
        self.name = name

    def __get__(self, client: "Client", owner: type["Client"]) -> Callable[P, R]:
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return client.perform(self, *args, **kwargs)

        return call


def _decode_list(decode: Callable[[Any], R]) -> Callable[[Any], list[R]]:
    return lambda documents: [decode(document) for document in documents]


def _decode_none(_: Any) -> None:
    return None


class Client(ABC):
    """The operations of a share."""

    config: ShareConfig
    patience_seconds: float = PATIENCE_SECONDS
    """Longest wait for a service that is away."""

    ask = Operation(
        lambda broker: broker.ask,
        arguments={"request": LeaseRequest.from_document},
        result=QueueStatus.from_document,
        sends_lock=True,
    )
    claim = Operation(
        lambda broker: broker.claim,
        arguments={"lease_id": decode_id},
        result=QueueStatus.from_document,
        is_patient=False,
    )
    enclose = Operation(
        lambda broker: broker.enclose,
        arguments={"lease_id": decode_id, "pid": decode_pid},
        result=_decode_none,
    )
    leave = Operation(
        lambda broker: broker.leave,
        arguments={"lease_id": decode_id},
        result=_decode_none,
        is_patient=False,
    )
    finish = Operation(
        lambda broker: broker.finish,
        arguments={"lease_id": decode_id, "childless": decode_flag},
        result=bool,
        is_patient=False,
    )
    release = Operation(
        lambda broker: broker.release,
        arguments={"lease_id": decode_id},
        result=Lease.from_document,
        is_repeatable=False,
    )
    schedule = Operation(
        lambda broker: broker.schedule,
        arguments={"runner": decode_runner, "jobs": decode_announcements},
        result=ScheduleAnswer.from_document,
    )
    state = Operation(lambda broker: broker.state, result=ShareState.from_document)
    history_page = Operation(
        lambda broker: broker.history_page,
        arguments={"after": decode_number, "since": decode_time},
        result=_decode_list(Lease.from_document),
    )
    reserve = Operation(
        lambda broker: broker.reserve,
        arguments={"request": ReservationRequest.from_document},
        result=Reservation.from_document,
        is_repeatable=False,
    )
    cancel = Operation(
        lambda broker: broker.cancel,
        arguments={"reservation_id": decode_id},
        result=Reservation.from_document,
        is_repeatable=False,
    )
    drain = Operation(
        lambda broker: broker.drain,
        arguments={"gpus": decode_indices, "until": decode_optional_time},
        result=Reservation.from_document,
        is_repeatable=False,
    )
    resume = Operation(
        lambda broker: broker.resume,
        result=_decode_list(Reservation.from_document),
        is_repeatable=False,
    )
    set_rules = Operation(
        lambda broker: broker.set_rules,
        arguments={"rules": Rules.from_document, "before": Rules.from_document},
        result=_decode_none,
    )

    @abstractmethod
    def perform(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run one operation, directly or through the service."""

    def history(self, since: float = 0.0) -> list[Lease]:
        """Return every lease that held GPUs since then, oldest first."""
        self.state()  # records the end of dead leases
        leases: list[Lease] = []
        while page := self.history_page(after=leases[-1].number if leases else 0, since=since):
            leases += page
        return leases

    @abstractmethod
    def close(self) -> None:
        """Close open files."""


OPERATIONS: Mapping[str, Operation[..., Any]] = {
    name: value for name, value in vars(Client).items() if isinstance(value, Operation)
}


class LocalClient(Client):
    """A client that owns the store and uses it directly."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        from gpuyard.share.broker import Broker  # a client of the service does not need it

        self.broker = Broker(directory, read_only=read_only)
        self.config = self.broker.store.config

    def perform(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return operation.bind(self.broker)(*args, **kwargs)

    def close(self) -> None:
        self.broker.close()


class ServiceClient(Client):
    """A client of the service, which runs as the owner of the store and learns from the kernel who calls."""

    def __init__(self, directory: Path) -> None:
        self.config = read_config(directory)
        self._directory = directory

    def perform(self, operation: Operation[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        from gpuyard.share import wire  # a local client needs no sockets

        arguments = {**dict(zip(operation.arguments, args, strict=False)), **kwargs}
        answer, locks = wire.call_patiently(
            self._directory,
            operation.name,
            patience_seconds=self.patience_seconds if operation.is_patient else 0.0,
            is_repeatable=operation.is_repeatable,
            **arguments,
        )
        if operation.sends_lock and len(locks) != 1:
            raise wire.other_version(self._directory)
        with wire.expect_same_version(self._directory):
            result = operation.result(answer)
        return (result, locks[0]) if operation.sends_lock else result  # type: ignore[return-value]

    def close(self) -> None:
        """Do nothing: every call has a connection of its own."""


def open_client() -> Client:
    """Open a client that can lease and release; create a personal share if there is none."""
    directory = share_directory()
    if not is_set_up(directory):
        if directory != own_directory():
            read_config(directory)  # its error explains how to set up a share
        from gpuyard.share.setup import set_up

        set_up(directory)
    return LocalClient(directory) if is_owner(directory) else ServiceClient(directory)


def open_reader() -> Client:
    """Open a client that only reads, which works on a full disk."""
    directory = share_directory()
    if not is_owner(directory):
        return ServiceClient(directory)
    with contextlib.suppress(GpuyardError):
        return LocalClient(directory)
    return LocalClient(directory, read_only=True)


def owned_directory() -> Path:
    """Return the directory of the share; raise GpuyardError unless this user owns it."""
    directory = share_directory()
    if not is_owner(directory):
        raise GpuyardError(f"only the owner of {directory} can do this; run it as that user")
    return directory


def is_owner(directory: Path) -> bool:
    """Return whether this user owns a share. Only its owner writes to it: the owner could not use files of root."""
    try:
        return directory.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        read_config(directory)  # its error explains how to set up a share
        raise
