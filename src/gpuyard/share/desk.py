"""Where a process asks: at the store itself if it owns it, else at the service that does."""

import os
from pathlib import Path
from typing import Protocol

from gpuyard.errors import GpuyardError
from gpuyard.share.broker import Broker, State, Turn
from gpuyard.share.caller import this_process
from gpuyard.share.config import ShareConfig, config_file, read_config
from gpuyard.share.lease import Lease, Request
from gpuyard.share.location import own_directory, share_directory


class Desk(Protocol):
    """The operations, as whoever calls them sees them."""

    config: ShareConfig

    def ask(self, request: Request) -> tuple[Turn, int]: ...
    def claim(self, id_: str, lock: int) -> Turn: ...
    def leave(self, id_: str) -> None: ...
    def finish(self, id_: str, *, childless: bool) -> bool: ...
    def release(self, id_: str) -> Lease: ...
    def state(self) -> State: ...
    def history(self) -> list[Lease]: ...
    def close(self) -> None: ...


class OwnDesk:
    """At the store itself."""

    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        self.broker = Broker(directory, read_only=read_only)
        self.config = self.broker.config
        self._caller = this_process()

    def ask(self, request: Request) -> tuple[Turn, int]:
        return self.broker.ask(self._caller, request)

    def claim(self, id_: str, lock: int) -> Turn:
        return self.broker.claim(self._caller, id_, lock)

    def leave(self, id_: str) -> None:
        self.broker.leave(self._caller, id_)

    def finish(self, id_: str, *, childless: bool) -> bool:
        return self.broker.finish(self._caller, id_, childless=childless)

    def release(self, id_: str) -> Lease:
        return self.broker.release(self._caller, id_)

    def state(self) -> State:
        return self.broker.state()

    def history(self) -> list[Lease]:
        return self.broker.history()

    def close(self) -> None:
        self.broker.close()


def open_desk() -> Desk:
    """To lease and release."""
    directory = share_directory()
    if not config_file(directory).exists():
        if directory != own_directory():
            read_config(directory)  # says how to set one up
        from gpuyard.share.setup import set_up

        set_up(directory)
    if is_ours(directory):
        return OwnDesk(directory)
    raise GpuyardError(f"{directory} belongs to another user, and its service is not running")


def open_to_look() -> Desk:
    """To look only: works on a full disk, and for those who can read the store and not write it."""
    directory = share_directory()
    if not is_ours(directory):
        return OwnDesk(directory, read_only=True)
    try:
        return OwnDesk(directory)
    except GpuyardError:
        return OwnDesk(directory, read_only=True)


def is_ours(directory: Path) -> bool:
    """Its owner writes it, and nobody else: not even root, whose files its owner could not use."""
    return directory.stat().st_uid == os.geteuid()
