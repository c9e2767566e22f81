"""The plan to build Horovod; the build itself takes minutes and is not run here."""

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
    """Stand-ins for a compiler and cmake that print their arguments."""
    for name in ("c++", "cmake"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\necho "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_the_wrapper_appends_the_standard(tools: Path) -> None:
    plan = plan_build()
    wrapper = tools / "wrapper"
    wrapper.write_text(plan.wrapper)
    wrapper.chmod(0o755)
    done = subprocess.run(
        [wrapper, "-std=c++14", "a b.cc"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "-std=c++14 a b.cc -std=gnu++17\n"


def test_a_dry_run_prints_the_plan_and_changes_nothing(tools: Path) -> None:
    done = CliRunner().invoke(horovod.app, ["install", "--dry-run", "--json"])
    plan = json.loads(done.stdout)
    assert plan["commands"][-1][-1] == "horovod==0.28.1"
    assert plan["environment"]["HOROVOD_WITH_GLOO"] == "1"


def test_a_missing_tool_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingRequirement, match=r"C\+\+ compiler"):
        plan_build()


def test_a_failed_build_shows_its_last_lines() -> None:
    failing = HorovodBuild("c++", (("sh", "-c", "echo no room; exit 3"),), {})
    lines: list[str] = []
    with pytest.raises(GpuyardError, match="no room"):
        build(failing, lines.append)
    assert lines == ["no room"]
