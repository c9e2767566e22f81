"""What building Horovod would do; building it takes minutes and is left to those who want it."""

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuyard.cli.measure import horovod
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.run.horovod_build import HorovodBuild, build, plan_build


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiler that says what it was asked for, and cmake."""
    for name in ("c++", "cmake"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\necho "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_wrapper_has_the_last_word(tools: Path) -> None:
    plan = plan_build()
    wrapper = tools / "wrapper"
    wrapper.write_text(plan.wrapper)
    wrapper.chmod(0o755)
    said = subprocess.run(
        [wrapper, "-std=c++14", "a b.cc"], capture_output=True, text=True, check=True
    )
    assert said.stdout == "-std=c++14 a b.cc -std=gnu++17\n"


def test_dry_run_prints_and_changes_nothing(tools: Path) -> None:
    done = CliRunner().invoke(horovod.app, ["install", "--dry-run", "--json"])
    said = json.loads(done.stdout)
    assert said["commands"][-1][-1] == "horovod==0.28.1"
    assert said["environment"]["HOROVOD_WITH_GLOO"] == "1"


def test_without_tools_it_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirement, match="install a C\\+\\+ compiler"):
        plan_build()


def test_a_failed_build_shows_its_last_lines() -> None:
    failing = HorovodBuild("c++", (("sh", "-c", "echo no room; exit 3"),), {})
    lines: list[str] = []
    with pytest.raises(GpuyardError, match="no room"):
        build(failing, lines.append)
    assert lines == ["no room"]
