"""Machines made as `gpuyard deploy up` makes them, without a word; and the client of a testbed, replaced by a stand-in."""

import os
import sys
from pathlib import Path

import pytest

from gpuyard.deploy.deployment import Opened, provision
from gpuyard.deploy.terraform.run import Changes
from tests.command_line import ROOT

SECRET = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC-gpuyard-test"  # noqa: S105


def quiet(words: str) -> None:
    del words


def provisioned(opened: Opened) -> Changes:
    with opened.state.changing():
        return provision(opened, quiet)[0]


def standing_in(
    directory: Path, monkeypatch: pytest.MonkeyPatch, *, client: str, module: str
) -> tuple[Path, Path]:
    """A testbed's directory and a user's certificate, with a module of the tests on the path as its client."""
    pytest.importorskip("tf")
    there, programs = directory / "testbed", directory / "bin"
    there.mkdir()
    programs.mkdir()
    program = programs / client
    program.write_text(f"#!/bin/sh\ncd '{ROOT}'\nexec '{sys.executable}' -m {module} \"$@\"\n")
    program.chmod(0o755)
    certificate = directory / "login.pem"
    certificate.write_text(f"-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----\n")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("GPUYARD_STANDIN", str(there))
    return there, certificate
