"""What the tests share: a home of their own, and the command line as a user has it."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test sees or changes the user's own store."""
    directory = tmp_path / "gpuyard-home"
    monkeypatch.setenv("GPUYARD_HOME", str(directory))
    return directory


@pytest.fixture
def cli() -> Cli:
    """Runs `gpuyard ARGUMENTS` as its own process, from the repository's root."""

    def run(
        *arguments: str,
        cwd: Path = ROOT,
        status: int = 0,
        environment: dict[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "gpuyard", *arguments],
            cwd=cwd,
            env={**os.environ, **(environment or {})},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run
