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
from gpuyard.share.schedule import STARTING, WAITING, AnnouncedJob, JobAnnouncement

EXPIRY_SECONDS = 20.0
MAX_START_SECONDS = 30.0
"""Time within which a job that was told to start must request its lease. After it, the job loses its place in the queue:
otherwise, a runner could keep GPUs from everyone without a lease."""
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
        starts: Mapping[str, int] | None = None,
    ) -> None:
        """Replace the announcement of a runner; `starts` has the GPUs of waiting jobs that it is told to start."""
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
        before = self._read_entries(path.name)
        document = {
            "boot_id": self._clock.boot_id,
            "expires_boot": self._clock.boot() + EXPIRY_SECONDS,
            "user": caller.user,
            "group": caller.group,
            "jobs": [
                self._update_entry(job, before.get(job.id, {}), (starts or {}).get(job.id, 0))
                for job in jobs
            ],
        }
        replace_file(path, json.dumps(document))

    def _update_entry(
        self, job: JobAnnouncement, before: Mapping[str, Any], start: int
    ) -> dict[str, Any]:
        """Return a job with its place in the queue and the GPUs that are kept for it."""
        granted = before.get("granted", 0) if job.phase in (WAITING, STARTING) else 0
        return {
            "job": asdict(job),
            "since": before.get("since", max(self._clock.wall(), job.submitted)),
            "granted": granted or start,
            "granted_boot": before["granted_boot"] if granted else self._clock.boot(),
        }

    def _end_grant(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the entry of a job; one that has not started in time is at the end of the queue."""
        over = self._clock.boot() - entry["granted_boot"] - MAX_START_SECONDS
        if entry["granted"] and over >= 0:
            return {**entry, "granted": 0, "since": self._clock.wall() - over}
        return entry

    def _read_entries(self, name: str) -> dict[str, dict[str, Any]]:
        """Return the last jobs of a runner by their ID, also if they have expired: they keep their places."""
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            document = json.loads((self.directory / name).read_bytes())
            if document["boot_id"] != self._clock.boot_id:
                return {entry["job"]["id"]: {"since": entry["since"]} for entry in document["jobs"]}
            return {entry["job"]["id"]: self._end_grant(entry) for entry in document["jobs"]}
        return {}

    def read(self) -> list[AnnouncedJob]:
        """Return the jobs of all living runners."""
        jobs = []
        for name in self._names():
            uid, _, runner = name.removesuffix(".json").partition("-")
            document = self._read_file(name)
            if document is not None:
                jobs += list(self._parse_jobs(int(uid), runner, document))
        return jobs

    def _parse_jobs(
        self, uid: int, runner: str, document: Mapping[str, Any]
    ) -> Iterator[AnnouncedJob]:
        user, group = document["user"], document["group"]
        for entry in map(self._end_grant, document["jobs"]):
            with contextlib.suppress(UserMistake):
                job = JobAnnouncement.from_document(entry["job"])
                yield AnnouncedJob(uid, user, group, runner, job, entry["since"], entry["granted"])

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
