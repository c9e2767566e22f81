"""The commands that people repeat all day answer at once: their plain lines import little, and mean what typer reads."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from gpuyard.cli.app import app
from gpuyard.cli.main import PLAIN_COMMANDS
from gpuyard.cli.plain import parse_plain
from gpuyard.cli.quick_commands import show_queue, show_status, show_who
from gpuyard.reporting.reporter import MARKER
from gpuyard.share.setup import set_up
from tests.command_line import ROOT
from tests.jobs.engines.local.conftest import Jobs, jobs, until

__all__ = ["jobs"]

_HEAVY = ("typer", "pydantic", "numpy", "ssl", "urllib.request", "kubernetes", "gpuyard.policies")
_QUICK: dict[str, Callable[..., None]] = {
    "who": show_who,
    "queue": show_queue,
    "status": show_status,
}
_PROGRAM = """
import sys
sys.argv = ["gpuyard", *sys.argv[1:]]
from gpuyard.cli.main import main
try:
    main()
except SystemExit as leaving:
    print(leaving.code, file=sys.stderr)
print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)
"""


def find_heavy_imports(*words: str) -> tuple[str, list[str]]:
    """Run a command in a new process; return its output and the heavy modules that it imported."""
    done = subprocess.run(
        (sys.executable, "-c", _PROGRAM.format(heavy=_HEAVY), *words),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "KUBECONFIG": "/nonexistent"},
        check=True,
    )
    return done.stdout, list(eval(done.stderr.split("\n")[-2]))  # noqa: S307 - a list that we printed


def test_who_queue_and_status_import_nothing_heavy(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.jobs.engines.local.filled_store import fill_store

    set_up(home / "share", fake_gpus=2)
    fill_store(ended=3, queued=0)
    monkeypatch.setenv("PATH", "/nonexistent")  # no Slurm
    output, heavy = find_heavy_imports("who", "--json")
    assert len(json.loads(output)["gpus"]) == 2
    assert heavy == []
    output, heavy = find_heavy_imports("queue", "--last", "2", "--json")
    assert [job["handle"] for job in json.loads(output)["jobs"]] == ["local://2", "local://3"]
    assert heavy == []
    output, heavy = find_heavy_imports("status", "--json")
    assert json.loads(output)["jobs"] == []
    assert heavy == []
    output, heavy = find_heavy_imports("status", "local://2")
    assert "local://2" in output
    assert heavy == []
    assert "typer" in find_heavy_imports("who", "--help")[1], "the check can fail"


@pytest.mark.parametrize("more", [{}, {"samples": 6400}])
def test_a_job_that_reports_its_steps_needs_no_heavy_imports(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    line = f'{MARKER}{{"steps": 10, "samples": 640, "seconds": 1, "number": 10, "total": 100}}'
    spec = jobs.directory / "train.job.yaml"
    spec.write_text(json.dumps({"command": ["sh", "-c", f"echo '{line}'; exec sleep 600"], **more}))
    handle = jobs.submit(str(spec))
    until(lambda: jobs.status(handle)["samples_per_second"], "the report")
    monkeypatch.setenv("PATH", "/nonexistent")  # no Slurm
    output, heavy = find_heavy_imports("queue", "--json")
    (job,) = json.loads(output)["jobs"]
    assert (job["done"], job["samples_per_second"]) == (0.1, 640)
    assert heavy == []
    assert find_heavy_imports("status", handle)[1] == []


def _parse(words: list[str]) -> Callable[[], None] | None:
    """Parse a line as the entry point does."""
    if not words or words[0] not in PLAIN_COMMANDS:
        return None
    return parse_plain(PLAIN_COMMANDS[words[0]], words[1:])


@pytest.mark.parametrize("name", _QUICK)
def test_a_plain_line_has_the_options_that_typer_declares(name: str) -> None:
    command: Any = typer.main.get_command(app).get_command(None, name)  # type: ignore[attr-defined]
    declared = {option.opts[0] for option in command.params if option.opts[0].startswith("--")}
    parameters = inspect.signature(_QUICK[name]).parameters.values()
    arguments = ["local://1"] if name == "status" else []
    for parameter in parameters:
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            option = (
                "--json" if parameter.name == "json_output" else f"--{parameter.name.strip('_')}"
            )
            assert option in declared
            is_flag = parameter.annotation is bool
            call: Any = _parse([name, *arguments, option, *([] if is_flag else ["7"])])
            assert call.keywords == {parameter.name: True if is_flag else 7}
            assert list(call.args) == arguments


@pytest.mark.parametrize(
    "words",
    [
        ["who", "--help"],
        ["who", "--jsn"],
        ["who", "now"],
        ["queue", "explain", "local://1"],
        ["queue", "--last"],
        ["queue", "--last", "-1"],
        ["queue", "--last", "x"],
        ["queue", "prune"],
        ["status", "local://1", "local://2"],
        ["submit", "--", "true"],
        [],
    ],
)
def test_typer_reads_every_other_line(words: list[str]) -> None:
    assert _parse(words) is None
