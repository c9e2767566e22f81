"""Create machines like `gpuyard deploy up`, without progress output, and replace a testbed's client by a stand-in."""

import contextlib
import os
import sys
from pathlib import Path

import psutil
import pytest

from gpuyard.deploy.deployment import LoadedDeployment, provision
from gpuyard.deploy.terraform.run import Changes
from tests.command_line import ROOT

SECRET = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC-gpuyard-test"  # noqa: S105


def quiet(message: str) -> None:
    del message


def run_provision(loaded: LoadedDeployment) -> Changes:
    with loaded.state.hold():
        return provision(loaded, quiet)[0]


def find_reapers(home: Path) -> list[int]:
    """Return the processes that wait until a deployment of this home expires: they have its lock open."""
    locks = {str(path) for path in (home / "deployments").glob("*/expiry.lock")}
    pids = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) in locks and int(link.parts[2]) != os.getpid():
                pids.add(int(link.parts[2]))
        except OSError:
            continue
    return sorted(pids)


def end_reapers(home: Path) -> None:
    """End these processes and wait until they are gone, so that a test leaves none behind."""
    processes = []
    for pid in find_reapers(home):
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
            processes[-1].kill()
    psutil.wait_procs(processes, timeout=30)
    assert find_reapers(home) == []


def install_standin(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, client: str, module: str
) -> tuple[Path, Path]:
    """Put a test module on the path as a testbed's client; return the testbed's directory and a user's certificate."""
    pytest.importorskip("tf")
    folder, programs = directory / "testbed", directory / "bin"
    folder.mkdir()
    programs.mkdir()
    program = programs / client
    program.write_text(f"#!/bin/sh\ncd '{ROOT}'\nexec '{sys.executable}' -m {module} \"$@\"\n")
    program.chmod(0o755)
    certificate = directory / "login.pem"
    certificate.write_text(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("GPUYARD_STANDIN", str(folder))
    return folder, certificate
