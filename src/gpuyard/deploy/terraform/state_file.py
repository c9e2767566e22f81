"""Terraform's state, which alone knows what was made: kept from a full disk, and missed where it is gone."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpuyard import files
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.web_client import json_of

_MOST_BYTES = 100_000_000
_ROOM_BYTES = 4_000_000  # for a state of thousands of machines
_BEGUN, _WRITTEN = "begun", "written"
Found = TypeVar("Found")


@dataclass(frozen=True)
class StateFile:
    """Of one working directory."""

    directory: Path

    @property
    def path(self) -> Path:
        return self.directory / "terraform.tfstate"

    def read(self, found: Callable[[dict[str, Any]], Found], nothing: Found) -> Found:
        """Without starting Terraform, which takes a second; nothing where there is none yet."""
        try:
            text = files.read_text(self.path, most_bytes=_MOST_BYTES)
        except UserMistake:  # nothing was ever made
            return nothing
        if not text.strip():
            if self._noted() == _WRITTEN or _has_words(self.directory / "terraform.tfstate.backup"):
                raise self._damaged("it is empty")  # Terraform empties it before it writes
            return nothing  # Terraform opens it for its lock before it has anything to write
        try:
            return found(json_of(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(str(error)) from None

    def note(self, *, begun: bool = False) -> None:
        """That something is written in it, or that something is begun to be made."""
        words = _WRITTEN if _has_words(self.path) else _BEGUN
        if words != self._noted() and (begun or words == _WRITTEN):
            with contextlib.suppress(GpuyardError):  # a full disk is told by what needs it
                files.write_text(self.mark, words, mode=0o600)

    @property
    def mark(self) -> Path:
        return self.directory / "begun"

    @property
    def perhaps_lost(self) -> bool:
        """Something was begun to be made, and no state knows of anything."""
        if not _has_words(self.path):
            return bool(self._noted())
        return self._noted() == _BEGUN and not self.read(lambda state: state["resources"], [])

    @contextlib.contextmanager
    def room(self, *, insist: bool) -> Iterator[Path]:
        """Some of the disk is held back, for the state that Terraform prints where it can't write it."""
        held = self.directory / "room"
        try:
            try:
                with held.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, _ROOM_BYTES)
            except OSError as error:
                if insist:  # what is made must be written down, for it may cost money
                    raise GpuyardError(
                        f"this machine has no room for what Terraform writes down ({self.directory}: {error.strerror}), "
                        "so nothing was made: make room, then run it again"
                    ) from error
            yield held
        finally:
            held.unlink(missing_ok=True)

    def keep(self, printed: dict[str, Any] | None, held: Path) -> None:
        """What Terraform could not write: it stands in a file beside the state, or was printed."""
        aside = self.directory / "errored.tfstate"
        if _has_words(aside):
            aside.replace(self.path)
        elif printed is not None:
            held.unlink(missing_ok=True)
            aside.unlink(missing_ok=True)
            files.write_text(self.path, json.dumps(printed), mode=0o600)

    def _noted(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return self.mark.read_text(encoding="ascii")
        return ""

    def _damaged(self, why: str) -> GpuyardError:
        return GpuyardError(
            f"Terraform's state ({self.path}) is damaged: {why}. Put back a copy of it, like the terraform.tfstate.backup "
            "beside it, then run it again"
        )


def _has_words(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
