"""Copies of files between this machine and the shared storage, over a real ssh."""

import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.access.fetch import plan_fetch, run_fetch
from gpuyard.deploy.deployment import load_deployment
from tests.conftest import Cli
from tests.deploy.conftest import Up

Run = Callable[..., Any]
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR x"


@pytest.fixture
def run(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return partial(cli, cwd=tmp_path / "here")


def test_new_and_changed_files_arrive_whole_with_their_times_and_modes(run: Run, up: Up) -> None:
    there = up.shared / "project" / "run 1"
    there.mkdir(parents=True)
    (there / "weights.pt").write_bytes(b"w" * 3_000_000)
    (there / "a b $(c)\n.txt").write_text("odd")
    (there / "empty").mkdir()
    (there / "latest").symlink_to("weights.pt")
    (there / "go.sh").write_text("exit")
    (there / "go.sh").chmod(0o755)
    (up.shared / "project" / ".venv").mkdir()
    (up.shared / "project" / ".venv" / "big").write_text("x")
    os.mkfifo(there / "pipe")
    os.utime(there / "weights.pt", (1_000_000_000, 1_000_000_000))
    fetch = ("deploy", "fetch", up.file, "project", "--json")

    assert json.loads(run(*fetch, "--dry-run").stdout)["copied_bytes"] == 3_000_007
    assert not Path("project").exists()
    done = json.loads(run(*fetch).stdout)
    assert {Path(entry["file"]).name for entry in done["copied"]} == {
        *("weights.pt", "a b $(c)\n.txt", "latest", "go.sh")
    }
    here = Path("project/run 1")
    assert (here / "weights.pt").read_bytes() == b"w" * 3_000_000
    assert (here / "weights.pt").stat().st_mtime == 1_000_000_000
    assert (here / "latest").readlink() == Path("weights.pt")
    assert (here / "empty").is_dir()
    assert stat.S_IMODE((here / "go.sh").stat().st_mode) == 0o755
    assert not Path("project/.venv").exists()

    assert json.loads(run(*fetch).stdout)["copied"] == []
    (there / "go.sh").write_text("exit 1")
    (here / "weights.pt").write_text("changed here")
    (here / "mine").write_text("only here")
    again = json.loads(run(*fetch).stdout)
    assert [entry["file"] for entry in again["copied"]] == ["run 1/go.sh"]
    assert again["kept"] == ["run 1/weights.pt"]
    assert (here / "weights.pt").read_text() == "changed here"
    assert (here / "mine").read_text() == "only here"


def test_one_file_or_everything_is_copied_to_where_it_is_wanted(run: Run, up: Up) -> None:
    (up.shared / "logs").mkdir()
    (up.shared / "logs" / "1.out").write_text("log")
    run("deploy", "fetch", up.file, "logs/1.out")
    assert Path("1.out").read_text() == "log"
    run("deploy", "fetch", up.file, "logs/1.out", "--to", "other.out")
    assert Path("other.out").read_text() == "log"
    Path("folder").mkdir()
    run("deploy", "fetch", up.file, f"{up.shared}/logs/1.out", "--to", "folder")
    assert Path("folder/1.out").read_text() == "log"
    assert "already up to date" in run("deploy", "fetch", up.file, "logs/1.out").stdout
    run("deploy", "fetch", up.file)
    assert Path("ours-shared/logs/1.out").read_text() == "log"


def test_mistakes_and_failures_name_the_path(run: Run, up: Up) -> None:
    fetch = ("deploy", "fetch", up.file)
    assert f"{up.shared}/none not found" in _flat(run(*fetch, "none", status=1).stderr)
    assert "'../etc'" in run(*fetch, "../etc", status=2).stderr
    assert "'/etc'" in run(*fetch, "/etc", status=2).stderr
    assert "no/such" in run(*fetch, "x", "--to", "no/such/x", status=2).stderr
    (up.shared / "x").mkdir()
    Path("x").write_text("a file")
    assert "x is a file here and a folder" in _flat(run(*fetch, "x", status=1).stderr)


def test_a_link_here_is_not_followed(run: Run, up: Up, tmp_path: Path) -> None:
    """Others may write to the shared storage, and must not choose where files go on this machine."""
    (up.shared / "x" / "sub").mkdir(parents=True)
    (up.shared / "x" / "sub" / "file").write_text("theirs")
    outside = tmp_path / "outside"
    outside.mkdir()
    Path("x").mkdir()
    Path("x/sub").symlink_to(outside)
    output = _flat(run("deploy", "fetch", up.file, "x", status=1).stderr)
    assert "x/sub is a file here and a folder" in output
    assert list(outside.iterdir()) == []


def test_an_interrupted_copy_leaves_no_partial_file(run: Run, up: Up) -> None:
    del run
    for name in "abc":
        (up.shared / name).write_bytes(name.encode() * 100_000)
    loaded = load_deployment(Path(up.file))
    plan = plan_fetch(loaded, loaded.state.hosts()[0], None, Path("copy"))

    def interrupt(step: str) -> None:
        if step.startswith("Copying 3"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_fetch(loaded, plan, interrupt)
    assert all(len(path.read_bytes()) == 100_000 for path in Path("copy").iterdir())
    run_fetch(loaded, plan, lambda _: None)
    assert sorted(path.name for path in Path("copy").iterdir()) == ["a", "b", "c"]


@pytest.fixture
def people(up: Up) -> Iterator[Path]:
    """Shared storage that every user can write to, and `nobody` as the only person."""
    if os.geteuid() != 0 or shutil.which("runuser") is None:
        pytest.skip("files of another user need root and runuser")
    with tempfile.TemporaryDirectory(dir="/tmp") as shared:
        Path(shared).chmod(0o1777)
        text = Path(up.file).read_text().replace(f"shared: {up.shared}", f"shared: {shared}")
        Path(up.file).write_text(f"{text}users: [{{name: nobody, keys: ['{KEY}']}}]\n")
        yield Path(shared)


def test_synced_files_belong_to_the_person(run: Run, up: Up, people: Path) -> None:
    Path("code").mkdir()
    Path("code/train.py").write_text("train")
    Path("code/old.py").write_text("old")
    sync = ("deploy", "sync", up.file, "code", "--json")
    assert json.loads(run(*sync, "--dry-run").stdout)["owner"] == "nobody"
    assert not (people / "code").exists()
    run(*sync)
    for path in (people / "code", people / "code/train.py"):
        assert path.owner() == "nobody"
    Path("code/old.py").unlink()
    assert json.loads(run(*sync, "--delete").stdout)["deleted"] == ["old.py"]
    assert not (people / "code/old.py").exists()
    (people / "code/train.py").chmod(0o600)
    run("deploy", "fetch", up.file, "code", "--to", "back")
    assert Path("back/train.py").owner() == "root"
    assert "nobody" in run("deploy", "sync", up.file, "code", "--user", "noboby", status=2).stderr


def _flat(text: str) -> str:
    return " ".join(text.split())
