"""Kill commands at a random time, alone or with their child processes, and find what they leave behind."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from gpuyard.measure.machine_lock import NAME as LOCK

_GONE_SECONDS = 60.0


@dataclass(frozen=True)
class Yard:
    """A user's home and project; all processes that are started here can be found by their home."""

    home: Path
    project: Path

    @property
    def environment(self) -> dict[str, str]:
        paths = [str(self.project), *(path for path in sys.path if path)]
        return {
            **os.environ,
            "GPUYARD_HOME": str(self.home),
            "PYTHONPATH": os.pathsep.join(paths),
            "TMPDIR": str(self.temporary),
            "TORCHINDUCTOR_CACHE_DIR": str(
                self.project.parent / "torch"
            ),  # a cache that stays on purpose
        }

    @property
    def temporary(self) -> Path:
        return self.project.parent / "tmp"

    def start(self, *command: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            command,
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        """Run `gpuyard ARGUMENTS` until it exits, and return its output."""
        with self.start(sys.executable, "-m", "gpuyard", *arguments) as process:
            out, err = process.communicate()
        assert process.returncode == 0, out + err
        return out

    def kill(self, *command: str, within_seconds: float) -> str:
        """Start a command, kill it with SIGKILL at a random time, and return its output until then.

        In half of the cases its child processes are killed too, as when memory runs out.
        """
        moment, alone = random.uniform(0, within_seconds), random.random() < 0.5
        with self.start(*command) as process:
            try:
                out, err = process.communicate(timeout=moment)
            except subprocess.TimeoutExpired:
                process.kill()
                for child in () if alone else list(self.processes()):
                    with contextlib.suppress(psutil.Error):
                        child.kill()
                out, err = process.communicate()
            assert "Traceback" not in err, f"killed after {moment:.3f} s\n{err}"
        deadline = time.monotonic() + _GONE_SECONDS
        while remaining := list(self.processes()):
            assert time.monotonic() < deadline, f"{remaining} outlive a kill after {moment:.3f} s"
            time.sleep(0.05)
        return out

    def leftovers(self) -> list[str]:
        """List everything in the directory for temporary files, and incomplete files anywhere."""
        everywhere = [*self.home.rglob("*"), *self.project.rglob("*")]
        incomplete = [
            path for path in everywhere if path.name.startswith((".gpuyard-", "gpuyard-"))
        ]
        kept = (path for path in incomplete if path.name != LOCK)
        return sorted(map(str, [*self.temporary.iterdir(), *kept]))

    def processes(self) -> Iterator[psutil.Process]:
        """Find running processes with this home."""
        for process in psutil.process_iter():
            try:
                same_home = process.environ().get("GPUYARD_HOME") == str(self.home)
                if same_home and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
            except psutil.Error:
                continue
