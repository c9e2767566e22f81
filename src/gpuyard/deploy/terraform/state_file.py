"""Terraform's state file, the only record of what exists. It is protected from a full disk, and its loss is detected."""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from gpuyard import files
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.web_client import parse_json

_MAX_BYTES = 100_000_000
_RESERVED_BYTES = 4_000_000  # enough for the state of thousands of machines
_BEGUN, _WRITTEN = "begun", "written"
Value = TypeVar("Value")


@dataclass(frozen=True)
class StateFile:
    """The state in one of Terraform's working directories."""

    directory: Path

    @property
    def path(self) -> Path:
        return self.directory / "terraform.tfstate"

    def read(self, extract: Callable[[dict[str, Any]], Value], default: Value) -> Value:
        """Read the file without starting Terraform, which takes a second; `default` if there is no state yet."""
        try:
            text = files.read_text(self.path, max_bytes=_MAX_BYTES)
        except UserMistake:  # nothing was ever created
            return default
        if not text.strip():
            backup = self.directory / "terraform.tfstate.backup"
            if self._read_marker() == _WRITTEN or _has_content(backup):
                raise self._damaged("it is empty")  # Terraform empties it before it writes
            return (
                default  # Terraform creates the file for its lock before it has anything to write
            )
        try:
            return extract(parse_json(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise self._damaged(str(error)) from None

    def update_marker(self, *, begun: bool = False) -> None:
        """Record that the state has content, or (`begun`) that Terraform has started to create something."""
        marker = _WRITTEN if _has_content(self.path) else _BEGUN
        if marker != self._read_marker() and (begun or marker == _WRITTEN):
            with contextlib.suppress(
                GpuyardError
            ):  # whoever needs the disk reports that it is full
                files.write_text(self.marker, marker, mode=0o600)

    @property
    def marker(self) -> Path:
        return self.directory / "begun"

    @property
    def may_be_lost(self) -> bool:
        """True if Terraform started to create something that no state records."""
        if not _has_content(self.path):
            return bool(self._read_marker())
        return self._read_marker() == _BEGUN and not self.read(lambda state: state["resources"], [])

    @contextlib.contextmanager
    def reserve_space(self, *, required: bool) -> Iterator[Path]:
        """Hold back some disk space for the state that Terraform prints if it cannot write it."""
        reserved = self.directory / "reserved"
        try:
            try:
                with reserved.open("wb") as file:
                    os.posix_fallocate(file.fileno(), 0, _RESERVED_BYTES)
            except OSError as error:
                if (
                    required
                ):  # everything that is created must be recorded, because it may cost money
                    raise GpuyardError(
                        f"no disk space for Terraform's state ({self.directory}: {error.strerror}), so nothing was "
                        "created; free some space, then run it again"
                    ) from error
            yield reserved
        finally:
            reserved.unlink(missing_ok=True)

    def recover(self, printed: dict[str, Any] | None, reserved: Path) -> None:
        """Restore a state that Terraform could not write: it is in a file next to the state, or was printed."""
        errored = self.directory / "errored.tfstate"
        if _has_content(errored):
            errored.replace(self.path)
        elif printed is not None:
            reserved.unlink(missing_ok=True)
            errored.unlink(missing_ok=True)
            files.write_text(self.path, json.dumps(printed), mode=0o600)

    def _read_marker(self) -> str:
        with contextlib.suppress(OSError, ValueError):
            return self.marker.read_text(encoding="ascii")
        return ""

    def _damaged(self, reason: str) -> GpuyardError:
        return GpuyardError(
            f"Terraform's state ({self.path}) is damaged: {reason}. Restore a copy, such as terraform.tfstate.backup in "
            "the same directory, then run it again"
        )


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0
