"""The directory of a job, which all nodes share: what each start printed, how it ended, and who runs now."""

import errno
import fcntl
import json
import os
import re
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Tuple, TypeVar

LOCK_SECONDS = 600.0
ROOM_SECONDS, LOOK_SECONDS = 600.0, 1.0
NO_DIRECTORY = 73  # as sysexits.h has it: what the script says goes to that directory
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Document = Dict[str, Any]
Done = TypeVar("Done")


def say(text: str) -> None:
    sys.stderr.write(f"gpuyard: {text}\n")
    sys.stderr.flush()


def exact(text: str) -> bytes:
    """To the byte as it was given, whatever a node's locale is."""
    return text.encode("utf-8", "surrogateescape")


def when_there_is_room(do: Callable[[], Done], patience: float = ROOM_SECONDS) -> Done:
    """Again and again while the disk is full."""
    deadline = time.time() + patience
    while True:
        try:
            return do()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or time.time() >= deadline:
                raise
        time.sleep(LOOK_SECONDS)


class TaskDirectory:
    """That of the job, or of one task of an array. Only its owner may write there."""

    def __init__(self, directory: str, token: str) -> None:
        self.token = token
        self.task = os.environ.get("SLURM_ARRAY_TASK_ID")
        self.number = int(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"])
        self.slurm_restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.path = exact(directory)
        self._make()
        if self.task is not None:
            self.path = self.file(f"task-{self.task}")
            self._make()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.lock = os.open(self.file("running.lock"), flags, 0o600)

    def _make(self) -> None:
        """Others could put links into one that they may write to."""
        try:
            os.makedirs(self.path, 0o700, exist_ok=True)
        except OSError:
            sys.exit(NO_DIRECTORY)
        found = os.lstat(self.path)
        if found.st_uid != os.geteuid() or found.st_mode & 0o170022 != 0o040000:
            sys.exit(NO_DIRECTORY)

    def file(self, name: str) -> bytes:
        return os.path.join(self.path, exact(name))

    def take_messages(self) -> None:
        """What this script says itself, and errors of it, go into a file beside the logs."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        messages = os.open(self.file(f"slurm-{self.number}.out"), flags, 0o600)
        os.dup2(messages, 1)
        os.dup2(messages, 2)

    def write(self, name: str, text: bytes, patience: float = ROOM_SECONDS) -> None:
        """Whole or not at all. A disk that is full is waited for: without word of its end, a start would count as lost."""
        when_there_is_room(lambda: self._write(name, text), patience)

    def _write(self, name: str, text: bytes) -> None:
        part = self.file(f".{name}.{socket.gethostname()}.{os.getpid()}")
        try:
            with os.fdopen(os.open(part, NEW_FILE, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(part, self.file(name))
        except OSError:
            self.remove(os.path.basename(part).decode())
            raise

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.file(name))
        except OSError:
            pass  # it is not there

    def keep(self, start: Document) -> None:
        self.write(f"{start['name']}.json", json.dumps(start).encode())

    def starts(self) -> List[Document]:
        """All there were, oldest first."""
        found = []
        for name in os.listdir(self.path):
            if re.match(rb"\d+-\d+\.json$", name):
                with open(os.path.join(self.path, name), "rb") as file:
                    found.append(json.loads(file.read().decode()))
        return sorted(found, key=lambda start: float(start["started"]))

    def new_log(self) -> Tuple[str, int]:
        """A file of its own for each start: never an old one, nor what a link names."""
        count = self.slurm_restarts
        while True:
            name = f"{self.number}-{count}"
            path = self.file(f"{name}.log")
            try:
                log = when_there_is_room(lambda: os.open(path, NEW_FILE | os.O_APPEND, 0o600))  # noqa: B023
            except FileExistsError:
                count += 1
            else:
                return name, log

    def claim(self) -> bool:
        """Whether no other start runs. One on a node that Slurm took for lost sees it here, and ends first."""
        self.write("newest", self.token.encode())
        deadline = time.time() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.time() > deadline:
                    return False
                time.sleep(1.0)
            except OSError as error:
                say(f"there are no locks in {self.path!r}: {error.strerror}")
                return True
            else:
                self.join()
                return True

    def join(self) -> None:
        """Hold it together with all processes of this start, on whatever nodes."""
        try:
            fcntl.flock(self.lock, fcntl.LOCK_SH)
        except OSError:
            pass  # said by `claim`

    def tell_to_end(self, start: str, patience: float = ROOM_SECONDS) -> None:
        """Its processes on all nodes, at a checkpoint: srun would pass a signal on to all that they have started."""
        self.write("told-to-end", start.encode(), patience)

    def is_told_to_end(self, start: str) -> bool:
        try:
            with open(self.file("told-to-end"), "rb") as file:
                return file.read().decode() == start
        except OSError:
            return False

    def superseded(self) -> bool:
        """A newer start waits for the end of this one."""
        try:
            with open(self.file("newest"), "rb") as file:
                return file.read().decode() != self.token
        except OSError:
            return False
