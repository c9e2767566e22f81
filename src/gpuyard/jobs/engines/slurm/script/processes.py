"""The job's processes on this node, the signals that the script receives, and the cleanup of remaining processes."""

import ctypes
import os
import select
import signal
import subprocess
import time
from typing import Callable, Dict, List, Optional, Tuple

from gpuyard.jobs.engines.slurm.script.task_directory import TaskDirectory

POLL_SECONDS = 2.0
SLURM_SECONDS = 20.0
GROUP_EXIT_SECONDS = 30.0
TERMINATED = 128 + int(signal.SIGTERM)
TERMINATED_SECONDS, FAILED_SECONDS = 5.0, 0.5
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
LIBC = ctypes.CDLL(None)

Launch = Tuple[List[bytes], Dict[bytes, bytes]]


def run_slurm(*words: str) -> str:
    """Run a Slurm program and return its output; empty if Slurm does not answer or refuses."""
    try:
        process = subprocess.run(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=SLURM_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return process.stdout.decode(errors="replace") if process.returncode == 0 else ""


def list_children(parent: int) -> List[int]:
    pids = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                if int(file.read().rpartition(b")")[2].split()[1]) == parent:
                    pids.append(int(name))
        except (OSError, IndexError):
            pass  # It has exited.
    return pids


def kill_descendants() -> None:
    """Kill everything that the job has started; orphans become children of this process."""
    deadline = time.time() + 30.0
    while time.time() < deadline:
        pids = list_children(os.getpid())
        for pid in pids:
            pids.extend(list_children(pid))
            send_signal(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.05)


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        pass  # It has exited.


def exit_with_parent() -> None:
    """Let the kernel kill this process if the script is killed, as Slurm may leave it running."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class SignalState:
    """The signals received so far. Slurm sends USR1 to the script shortly before its time limit."""

    def __init__(self) -> None:
        self.checkpoint = self.stop = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write)
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, self._handle)
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def _handle(self, number: int, _frame: object) -> None:
        self.checkpoint = self.checkpoint or number == signal.SIGUSR1
        self.stop = self.stop or number == signal.SIGTERM

    def sleep(self, seconds: float) -> None:
        """Sleep until a signal arrives."""
        if select.select([self._read], [], [], seconds)[0]:
            os.read(self._read, 4096)

    def sleep_until_stop(self, seconds: float) -> None:
        """Sleep, but not longer than Slurm lets this script run."""
        end = time.time() + seconds
        while time.time() < end and not self.stop:
            self.sleep(max(0.0, end - time.time()))

    def expect_stop(self, status: int) -> None:
        """If Slurm stops the job, its signal may reach this script after the processes that it started."""
        self.sleep_until_stop(TERMINATED_SECONDS if status == TERMINATED else FAILED_SECONDS)


class ProcessGroup:
    """The job's process on this node, or one srun for each of its allocations."""

    def __init__(
        self, launches: List[Launch], cwd: bytes, output: int, directory: TaskDirectory
    ) -> None:
        self.directory = directory
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
                    pass_fds=(directory.lock,),  # Every running process holds the lock.
                    preexec_fn=exit_with_parent,  # noqa: PLW1509 - this script has no threads
                )
            except OSError as error:
                what = f"{argv[0].decode(errors='replace')!r} in {cwd.decode(errors='replace')!r}"
                os.write(output, f"gpuyard: cannot start {what}: {error.strerror}\n".encode())
                self.status = 127 if isinstance(error, FileNotFoundError) else 126
                break
            self.processes.append(process)

    def wait(self, signals: SignalState, poll: Callable[[], None]) -> int:
        """Wait for the processes, call `poll` regularly, and return the exit status that a shell would report."""
        first_exit = None
        while self.status is None:
            statuses = [process.poll() for process in self.processes]
            failures = [status for status in statuses if status]
            if statuses.count(None) < len(statuses) and first_exit is None:
                first_exit = time.time()
            if None not in statuses:
                first = failures[0] if failures else 0
                self.status = first if first >= 0 else 128 - first
            elif failures or (first_exit and time.time() > first_exit + GROUP_EXIT_SECONDS):
                self._stop_rest(signals)
            elif self.directory.is_superseded():
                self.send(signal.SIGKILL)
                signals.sleep(POLL_SECONDS)
            else:
                poll()
                signals.sleep(POLL_SECONDS)
        kill_descendants()
        return self.status

    def _stop_rest(self, signals: SignalState) -> None:
        """Stop the processes in the other allocations after one has failed."""
        deadline = time.time() + GROUP_EXIT_SECONDS
        while any(process.poll() is None for process in self.processes):
            self.send(signal.SIGTERM if time.time() < deadline else signal.SIGKILL)
            signals.sleep(POLL_SECONDS)

    def send(self, number: int, to_children: bool = False) -> None:
        for process in self.processes:
            if process.poll() is None:
                for pid in list_children(process.pid) if to_children else [process.pid]:
                    send_signal(pid, number)
