"""The directory of a job, which all nodes share: the log and the result of each start, and a lock for the one that runs."""

import errno
import fcntl
import json
import os
import re
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar

LOCK_SECONDS = 600.0
DISK_FULL_SECONDS, DISK_FULL_POLL_SECONDS = 600.0, 1.0
NO_DIRECTORY = 73  # EX_CANTCREAT of sysexits.h: there is no directory for a message.
NOT_STARTED, FINISHED = 0.0, 1.0  # instead of the time of a node's last sign of life
NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Document = Dict[str, Any]
Result = TypeVar("Result")


def log_message(text: str) -> None:
    sys.stderr.write(f"gpuyard: {text}\n")
    sys.stderr.flush()


def encode(text: str) -> bytes:
    """Encode text to the original bytes, regardless of the node's locale."""
    return text.encode("utf-8", "surrogateescape")


def retry_while_full(write: Callable[[], Result], seconds: float = DISK_FULL_SECONDS) -> Result:
    """Retry while the disk is full."""
    deadline = time.time() + seconds
    while True:
        try:
            return write()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or time.time() >= deadline:
                raise
        time.sleep(DISK_FULL_POLL_SECONDS)


class TaskDirectory:
    """The directory of a job or of one task of an array; only its owner may write to it."""

    def __init__(self, directory: str, token: str) -> None:
        self.token = token
        self.task = os.environ.get("SLURM_ARRAY_TASK_ID")
        self.number = int(os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ["SLURM_JOB_ID"])
        self.slurm_restarts = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        self.path = encode(directory)
        self._create()
        if self.task is not None:
            self.path = self.file(f"task-{self.task}")
            self._create()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self.lock = os.open(self.file("running.lock"), flags, 0o600)

    def _create(self) -> None:
        """Create the directory; exit if others can write to it, as they could put links there."""
        try:
            os.makedirs(self.path, 0o700, exist_ok=True)
        except OSError:
            sys.exit(NO_DIRECTORY)
        status = os.lstat(self.path)
        if status.st_uid != os.geteuid() or status.st_mode & 0o170022 != 0o040000:
            sys.exit(NO_DIRECTORY)

    def file(self, name: str) -> bytes:
        return os.path.join(self.path, encode(name))

    def redirect_messages(self) -> None:
        """Write this script's own messages and errors to a file next to the logs."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        messages = os.open(self.file(f"slurm-{self.number}.out"), flags, 0o600)
        os.dup2(messages, 1)
        os.dup2(messages, 2)

    def write(self, name: str, text: bytes, seconds: float = DISK_FULL_SECONDS) -> None:
        """Replace a file atomically. Wait while the disk is full: a start without a result would count as lost."""
        retry_while_full(lambda: self._write(name, text), seconds)

    def _write(self, name: str, text: bytes) -> None:
        part = f".{name}.{socket.gethostname()}.{os.getpid()}"
        try:
            with os.fdopen(os.open(self.file(part), NEW_FILE, 0o600), "wb") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.rename(self.file(part), self.file(name))
        except OSError:
            self.remove(part)
            raise

    def write_json(self, name: str, document: Document, seconds: float = DISK_FULL_SECONDS) -> None:
        self.write(name, json.dumps(document).encode(), seconds)

    def read(self, name: str) -> str:
        """Return the content of a file; empty if it cannot be read."""
        try:
            with open(self.file(name), "rb") as file:
                return file.read().decode()
        except (OSError, ValueError):
            return ""

    def read_json(self, name: str) -> Optional[Document]:
        try:
            document: Any = json.loads(self.read(name))
        except ValueError:
            return None
        return document if isinstance(document, dict) else None

    def remove(self, name: str) -> None:
        try:
            os.unlink(self.file(name))
        except OSError:
            pass  # It does not exist.

    def record_start(self, start: Document) -> None:
        self.write_json(f"{start['name']}.json", start)

    def starts(self) -> List[Document]:
        """Return all recorded starts, oldest first."""
        names = [n.decode() for n in os.listdir(self.path) if re.match(rb"\d+-\d+\.json$", n)]
        starts = [json.loads(self.read(name)) for name in names]
        return sorted(starts, key=lambda start: float(start["started"]))

    def create_log(self) -> Tuple[str, int]:
        """Create a new log for a start; never write to an existing file or through a link."""
        count = self.slurm_restarts
        while True:
            name = f"{self.number}-{count}"
            path = self.file(f"{name}.log")
            try:
                log = retry_while_full(lambda: os.open(path, NEW_FILE | os.O_APPEND, 0o600))  # noqa: B023
            except FileExistsError:
                count += 1
            else:
                return name, log

    def acquire(self) -> bool:
        """Wait until no other start runs; return False after a timeout.

        If Slurm wrongly took a node for lost, the start there sees the newer token and exits first.
        """
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
                log_message(f"locks do not work in {self.path!r}: {error.strerror}")
                return True
            else:
                self.share_lock()
                return True

    def share_lock(self) -> None:
        """Hold the lock together with all processes of this start, on all nodes."""
        try:
            fcntl.flock(self.lock, fcntl.LOCK_SH)
        except OSError:
            pass  # `acquire` has reported it.

    def is_unlocked(self) -> bool:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        fcntl.flock(self.lock, fcntl.LOCK_UN)
        return True

    def record_node_failure(self, start: str, node: int) -> None:
        """Record that the command itself failed on a node, as srun reports its own failures in the same way."""
        try:
            self.write(f"{start}.failed-{node}", b"", seconds=0.0)
        except OSError:
            pass  # The failure then counts as Slurm's.

    def has_node_failure(self, start: str, status: int) -> bool:
        prefix = encode(f"{start}.failed-")
        return status == NO_DIRECTORY or any(n.startswith(prefix) for n in os.listdir(self.path))

    def create_signs_of_life(self, start: str, nodes: int) -> None:
        """Create a file for each node, so that the nodes only change its time, even if the disk is full by then."""
        for node in range(nodes):
            try:
                os.close(os.open(self._sign_of_life(start, node), NEW_FILE, 0o600))
            except OSError:
                return  # The disk is full; no process watches the remaining nodes.
            self.show_life(start, node, NOT_STARTED)

    def show_life(self, start: str, node: int, at: Optional[float] = None) -> None:
        """Show the first node that this node's part of the job still runs, or NOT_STARTED or FINISHED."""
        try:
            os.utime(self._sign_of_life(start, node), None if at is None else (at, at))
        except OSError:
            pass  # The first node waits for a while.

    def read_sign_of_life(self, start: str, node: int) -> Optional[float]:
        """Return the latest time that a node showed; None if no process watches it."""
        try:
            return os.lstat(self._sign_of_life(start, node)).st_mtime
        except OSError:
            return None

    def remove_signs_of_life(self, start: str, nodes: int) -> None:
        for node in range(nodes):
            self.remove(f"{start}.alive-{node}")

    def _sign_of_life(self, start: str, node: int) -> bytes:
        return self.file(f"{start}.alive-{node}")

    def request_checkpoint(self, start: str, seconds: float = DISK_FULL_SECONDS) -> None:
        """Ask the processes on all nodes to write a checkpoint and exit: srun would signal all their descendants."""
        self.write("checkpoint-request", start.encode(), seconds)

    def checkpoint_requested(self, start: str) -> bool:
        return self.read("checkpoint-request") == start

    def is_superseded(self) -> bool:
        """Return whether a newer start waits for this one to exit."""
        return self.read("newest") not in ("", self.token)
