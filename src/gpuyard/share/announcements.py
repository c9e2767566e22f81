"""The open jobs of all users, as their runners announce them to the share.

Each runner's announcement is one file of the owner's, which expires: the jobs of a dead runner stop counting after some
seconds. Losing the files is harmless, because the next announcement follows within seconds.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.share.caller import Caller
from gpuyard.share.clock import Clock
from gpuyard.share.schedule import AnnouncedJob, JobAnnouncement

EXPIRY_SECONDS = 20.0
_FOLDER = "announced"
_MAX_RUNNERS = 4  # per user: one for each home directory
_FILE_NAME = re.compile(r"\d+-[0-9a-f]{1,16}\.json")


class Announcements:
    """The files of all runners; only the owner of the share reads and writes them."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self.directory = directory / _FOLDER
        self._clock = clock

    def write(
        self,
        caller: Caller,
        runner: str,
        jobs: Sequence[JobAnnouncement],
        granted: Mapping[str, int] | None = None,
    ) -> None:
        """Replace the announcement of a runner; `granted` has the GPUs of jobs that it must start."""
        self.directory.mkdir(mode=0o700, exist_ok=True)
        path = self.directory / f"{caller.uid}-{runner}.json"
        if not jobs:
            path.unlink(missing_ok=True)
            return
        others = [name for name in self._names() if name.startswith(f"{caller.uid}-")]
        if path.name not in others and len(others) >= _MAX_RUNNERS:
            self._remove_expired(others)
            if sum((self.directory / name).exists() for name in others) >= _MAX_RUNNERS:
                raise UserMistake(
                    f"{caller.user} has {_MAX_RUNNERS} runners already, each with its own "
                    "GPUYARD_HOME; jobs of another one wait until one of them is done"
                )
        document = {
            "boot_id": self._clock.boot_id,
            "expires_boot": self._clock.boot() + EXPIRY_SECONDS,
            "user": caller.user,
            "group": caller.group,
            "jobs": [asdict(job) for job in jobs],
            "granted": dict(granted or {}),
        }
        replace_file(path, json.dumps(document))

    def read(self) -> list[AnnouncedJob]:
        """Return the jobs of all living runners."""
        jobs = []
        for name in self._names():
            uid, _, runner = name.removesuffix(".json").partition("-")
            document = self._read_file(name)
            if document is not None:
                jobs += list(_parse_jobs(int(uid), runner, document))
        return jobs

    def _names(self) -> list[str]:
        try:
            names = sorted(path.name for path in self.directory.iterdir())
        except FileNotFoundError:
            return []
        return [name for name in names if _FILE_NAME.fullmatch(name)]

    def _read_file(self, name: str) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            document = dict(json.loads((self.directory / name).read_bytes()))
            lives = document["boot_id"] == self._clock.boot_id
            if lives and document["expires_boot"] > self._clock.boot():
                return document
        return None

    def _remove_expired(self, names: Sequence[str]) -> None:
        for name in names:
            if self._read_file(name) is None:
                (self.directory / name).unlink(missing_ok=True)


def _parse_jobs(uid: int, runner: str, document: Mapping[str, Any]) -> Iterator[AnnouncedJob]:
    user, group, granted = document["user"], document["group"], document["granted"]
    for job in document["jobs"]:
        with contextlib.suppress(UserMistake):
            parsed = JobAnnouncement.from_document(job)
            yield AnnouncedJob(uid, user, group, runner, parsed, int(granted.get(parsed.id, 0)))


def replace_file(path: Path, text: str) -> None:
    """Replace a file in one step. It need not survive a power cut, so it is not synchronized."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
