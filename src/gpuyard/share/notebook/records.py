"""Records of a user's running notebooks: one private directory per notebook, which is deleted when the notebook ends."""

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.files import home
from gpuyard.loopback_port import find_listener_uid

_RECORD = "notebook.json"
_CONFIGURATION = "jupyter_server_config.json"  # the name that Jupyter looks for


@dataclass(frozen=True)
class Notebook:
    """A running notebook. Its ID is that of its lease."""

    id: str
    port: int
    token: str
    directory: str
    gpus: tuple[int, ...]
    until: str | None
    user: str
    host: str

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> "Notebook":
        """Build a notebook from the JSON of its `asdict`."""
        return cls(**{**document, "gpus": tuple(document["gpus"])})

    @property
    def is_reachable(self) -> bool:
        """True if this user listens on the port. After a kill of gpuyard, another user may: never show them the token."""
        return find_listener_uid(self.port) == os.getuid()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def tunnel(self) -> str:
        """The SSH command to run on the user's own computer."""
        return f"ssh -L {self.port}:127.0.0.1:{self.port} {self.user}@{self.host}"

    def document(self) -> dict[str, Any]:
        """Return the document that `--json` prints."""
        values = asdict(self)
        del values["token"]
        way = (self.tunnel, self.url) if self.is_reachable else (None, None)
        return {**values, "gpus": list(self.gpus), "tunnel": way[0], "url": way[1]}


def write_record(notebook: Notebook, configuration: str) -> Path:
    """Create the directory from which Jupyter reads its token, and return it."""
    directory = notebooks_directory() / notebook.id
    try:
        directory.mkdir(mode=0o700, parents=True)
        _write_private(directory / _CONFIGURATION, configuration)
        _write_private(directory / _RECORD, json.dumps(asdict(notebook)) + "\n")
    except OSError as error:
        raise GpuyardError(f"{directory} cannot be written: {error.strerror}") from error
    return directory


def remove_record(id_: str) -> None:
    """Delete a record. The files of the notebook are elsewhere and stay."""
    shutil.rmtree(notebooks_directory() / id_, ignore_errors=True)


def read_records() -> list[Notebook]:
    """Return all recorded notebooks of this user, including those that were killed."""
    notebooks = []
    for path in sorted(notebooks_directory().glob(f"*/{_RECORD}")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            notebooks.append(Notebook.from_document(json.loads(path.read_text(encoding="utf-8"))))
    return notebooks


def _write_private(path: Path, text: str) -> None:
    """Write a file that no other user can ever read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def notebooks_directory() -> Path:
    """Return the directory of this user's notebooks on this machine.

    Machines that share a home must not mistake each other's notebooks for ended ones.
    """
    return home() / "notebooks" / os.uname().nodename
