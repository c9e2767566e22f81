"""A store that gpuyard 0.1 wrote, and its exports, can still be read completely."""

import json
import shutil
from typing import Any

import pytest

from gpuyard import files
from tests.conftest import ROOT, Cli

RECORDED = ROOT / "tests/data/store"
KINDS = ("train", "links", "collectives", "relief", "storage", "rejected")


@pytest.fixture(autouse=True)
def _recorded_home(_home: None) -> None:
    files.home().mkdir(parents=True)
    shutil.copy(RECORDED / "results.sqlite", files.results_file())


def holds(now: Any, then: Any) -> bool:
    """Return whether all recorded values are still there; keys may have been added."""
    if isinstance(then, dict):
        return all(key in now and holds(now[key], value) for key, value in then.items())
    if isinstance(then, list):
        return len(now) == len(then) and all(map(holds, now, then))
    return bool(now == then)


@pytest.mark.parametrize("kind", KINDS)
def test_a_recorded_store_is_listed_shown_and_exported_as_it_was(kind: str, cli: Cli) -> None:
    listed = json.loads(cli("results", "list", "--kind", kind, "--json").stdout)
    then = json.loads((RECORDED / f"{kind}.json").read_text())
    assert then
    assert holds(listed, then)
    exported = cli("results", "export", "--kind", kind).stdout.splitlines()
    lines = (RECORDED / f"{kind}.jsonl").read_text().splitlines()
    assert holds([json.loads(line) for line in exported], [json.loads(line) for line in lines])
    shown = json.loads(cli("results", "show", then[0]["id"], "--json").stdout)
    assert holds(shown, json.loads(lines[0]))
    assert then[0]["id"] in cli("results", "list", "--kind", kind).stdout


@pytest.mark.parametrize("kind", ["train", "links", "collectives", "rejected"])
def test_csv_rows_are_the_same(kind: str, cli: Cli) -> None:
    exported = cli("results", "export", "--kind", kind, "--as", "csv").stdout
    assert exported == (RECORDED / f"{kind}.csv").read_text()


def test_recorded_exports_are_read_as_the_store_is(cli: Cli) -> None:
    files = [f"--results={RECORDED / name}" for name in ("train.jsonl", "links.jsonl")]
    of_exports = cli("calibrate", *files, "--doubtful", "--dry-run", status=1)
    of_store = cli(
        "calibrate", f"--results={RECORDED / 'results.sqlite'}", "--doubtful", "--dry-run", status=1
    )
    assert "too little was measured to calibrate" in of_exports.stderr
    assert of_exports.stderr == of_store.stderr
