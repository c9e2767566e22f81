"""A process of the job on this node, what signals say meanwhile, and what of it is left in the end."""

import ctypes
import os
import select
import signal
import subprocess
import time
from typing import Callable, Dict, List, Optional, Tuple

from gpuyard.jobs.engines.slurm.script.place import TaskDirectory

TICK_SECONDS = 2.0
SLURM_SECONDS = 20.0
TOGETHER_SECONDS = 30.0
SET_CHILD_SUBREAPER = 36


def ask(*words: str) -> str:
    """What Slurm says; nothing where it does not answer."""
    try:
        said = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SLURM_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return said.stdout.decode(errors="replace") if said.returncode == 0 else ""


def children(parent: int) -> List[int]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                    found.append(int(name))
        except (OSError, IndexError):
            pass  # it has ended
    return found


def kill_descendants() -> None:
    """What the job started and left behind too: this process adopts it."""
    deadline = time.time() + 30.0
    while time.time() < deadline:
        found = children(os.getpid())
        for pid in found:
            found.extend(children(pid))
            send(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.05)


def send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # it has ended


class HeardSignals:
    """What signals have said. Slurm sends USR1 to the script when its time is nearly over."""

    def __init__(self) -> None:
        self.checkpoint = self.stop = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write)
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, self._hear)
        ctypes.CDLL(None).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def _hear(self, number: int, _frame: object) -> None:
        self.checkpoint = self.checkpoint or number == signal.SIGUSR1
        self.stop = self.stop or number == signal.SIGTERM

    def sleep(self, seconds: float) -> None:
        """Until something is said."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)


Launch = Tuple[List[bytes], Dict[bytes, bytes]]


class Running:
    """The job's process on this node, or one srun for each of its allocations, which has those of all nodes there."""

    def __init__(
        self, launches: List[Launch], cwd: bytes, output: int, place: TaskDirectory
    ) -> None:
        self.place = place
        self.status: Optional[int] = None
        self.processes: List[subprocess.Popen[bytes]] = []
        for argv, environment in launches:
            try:
                process = subprocess.Popen(
                    argv,
                    env=environment,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=(place.lock,),  # whoever still runs holds it
                )
            except OSError as error:
                what = f"{argv[0].decode(errors='replace')!r} in {cwd.decode(errors='replace')!r}"
                os.write(output, f"gpuyard: can't start {what}: {error.strerror}\n".encode())
                self.status = 127 if isinstance(error, FileNotFoundError) else 126
                break
            self.processes.append(process)

    def wait(self, told: HeardSignals, look: Callable[[], None]) -> int:
        """How it ended, as a shell says it; meanwhile looks again and again."""
        alone_since = None
        while self.status is None:
            found = [process.poll() for process in self.processes]
            failed = [status for status in found if status]
            if found.count(None) < len(found) and alone_since is None:
                alone_since = time.time()
            if None not in found:
                first = failed[0] if failed else 0
                self.status = first if first >= 0 else 128 - first
            elif failed or (alone_since and time.time() > alone_since + TOGETHER_SECONDS):
                self.end_all(told)
            elif self.place.superseded():
                self.send(signal.SIGKILL)
                told.sleep(TICK_SECONDS)
            else:
                look()
                told.sleep(TICK_SECONDS)
        kill_descendants()
        return self.status

    def end_all(self, told: HeardSignals) -> None:
        """One allocation's part has ended, and not well: those of the others end with it."""
        deadline = time.time() + TOGETHER_SECONDS
        while any(process.poll() is None for process in self.processes):
            self.send(signal.SIGTERM if time.time() < deadline else signal.SIGKILL)
            told.sleep(TICK_SECONDS)

    def send(self, number: int, to_children: bool = False) -> None:
        for process in self.processes:
            if process.poll() is None:
                for pid in children(process.pid) if to_children else [process.pid]:
                    send(pid, number)
