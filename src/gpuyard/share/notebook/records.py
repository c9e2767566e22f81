"""What is known of a user's notebooks: a directory for each, which only they can enter, gone when it has ended."""

import contextlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.files import home

_RECORD = "notebook.json"
_CONFIGURATION = "jupyter_server_config.json"  # the name that Jupyter looks for


@dataclass(frozen=True)
class Notebook:
    """One that runs; its id is its lease's."""

    id: str
    port: int
    token: str
    directory: str
    gpus: tuple[int, ...]
    until: str | None
    user: str
    host: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def tunnel(self) -> str:
        """To be run on the user's own computer."""
        return f"ssh -L {self.port}:127.0.0.1:{self.port} {self.user}@{self.host}"

    def document(self) -> dict[str, Any]:
        """For programs."""
        known = asdict(self)
        del known["token"]
        return {**known, "gpus": list(self.gpus), "url": self.url, "tunnel": self.tunnel}


def write_record(notebook: Notebook, configuration: str) -> Path:
    """The directory, which Jupyter reads its token from."""
    directory = all_notebooks() / notebook.id
    try:
        directory.mkdir(mode=0o700, parents=True)
        _write(directory / _CONFIGURATION, configuration)
        _write(directory / _RECORD, json.dumps(asdict(notebook)) + "\n")
    except OSError as error:
        raise GpuyardError(f"{directory} can't be written: {error.strerror}") from error
    return directory


def remove_record(id_: str) -> None:
    """The notebook's own files are elsewhere and stay."""
    shutil.rmtree(all_notebooks() / id_, ignore_errors=True)


def records() -> list[Notebook]:
    """Of this user, also those that were killed."""
    found = []
    for path in sorted(all_notebooks().glob(f"*/{_RECORD}")):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            document = json.loads(path.read_text(encoding="utf-8"))
            found.append(Notebook(**{**document, "gpus": tuple(document["gpus"])}))
    return found


def _write(path: Path, text: str) -> None:
    """Nobody else can read it at any time."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)


def all_notebooks() -> Path:
    """Of this user on this machine: where several share a home, none may take another's notebooks for ended."""
    return home() / "notebooks" / os.uname().nodename
