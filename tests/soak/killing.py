"""Commands that are killed at a random moment, alone or with all that they started, and what is left of them."""

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
    """A user's home and project; each process that is started here, and each that those start, is known by it."""

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
            "TORCHINDUCTOR_CACHE_DIR": str(self.project.parent / "torch"),  # a cache, meant to stay
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
        """`gpuyard ARGUMENTS` to its end; what it printed."""
        with self.start(sys.executable, "-m", "gpuyard", *arguments) as process:
            out, err = process.communicate()
        assert process.returncode == 0, out + err
        return out

    def kill(self, *command: str, within_seconds: float) -> str:
        """Start it and kill -9 it at a random moment; what it had printed until then.

        Every other time all that it started dies with it, as when memory is short.
        """
        moment, alone = random.uniform(0, within_seconds), random.random() < 0.5
        with self.start(*command) as process:
            try:
                out, err = process.communicate(timeout=moment)
            except subprocess.TimeoutExpired:
                process.kill()
                for started in () if alone else list(self.processes()):
                    with contextlib.suppress(psutil.Error):
                        started.kill()
                out, err = process.communicate()
            assert "Traceback" not in err, f"killed after {moment:.3f} s\n{err}"
        deadline = time.monotonic() + _GONE_SECONDS
        while left := list(self.processes()):
            assert time.monotonic() < deadline, f"{left} outlive a kill after {moment:.3f} s"
            time.sleep(0.05)
        return out

    def leftovers(self) -> list[str]:
        """Whatever is in the directory for temporary files, and what is half written anywhere."""
        everywhere = [*self.home.rglob("*"), *self.project.rglob("*")]
        half = [path for path in everywhere if path.name.startswith((".gpuyard-", "gpuyard-"))]
        kept = (path for path in half if path.name != LOCK)
        return sorted(map(str, [*self.temporary.iterdir(), *kept]))

    def processes(self) -> Iterator[psutil.Process]:
        """Those that know this home and still run."""
        for process in psutil.process_iter():
            try:
                known = process.environ().get("GPUYARD_HOME") == str(self.home)
                if known and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
            except psutil.Error:
                continue
