"""Ordinary users on Slurm: a job runs as its owner, and other users cannot read or cancel it."""

import json
import shutil
import tempfile
from pathlib import Path

from tests.jobs.engines.slurm.conftest import Yard, until
from tests.jobs.test_job import NASTY
from tests.other_users import public_gpuyard
from tests.share.test_users import accounts

__all__ = ["accounts"]


class User:
    """A Unix account whose home all nodes share."""

    def __init__(self, yard: Yard, name: str) -> None:
        self._yard, self.name = yard, name
        self.home = Path(tempfile.mkdtemp(dir=yard.slurm.configuration.parent))
        self.home.chmod(0o755)
        shutil.chown(self.home, name, name)

    def run(self, *arguments: str) -> tuple[int, str, str]:
        as_user = (
            "setpriv",
            f"--reuid={self.name}",
            f"--regid={self.name}",
            "--clear-groups",
            "env",
        )
        settings = {
            **public_gpuyard().environment,
            "GPUYARD_HOME": str(self.home / "own"),
            "GPUYARD_ENGINE": "slurm",
            "HOME": str(self.home),
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }
        variables = (f"{name}={value}" for name, value in settings.items())
        gpuyard = (public_gpuyard().python, "-m", "gpuyard", *arguments)
        done = self._yard.slurm.run(*as_user, "-C", str(self.home), *variables, *gpuyard)
        return done.returncode, done.stdout, done.stderr

    def submit(self, *arguments: str) -> str:
        status, output, errors = self.run("submit", *arguments)
        assert (status, errors) == (0, ""), errors
        return output.strip()


def test_a_job_runs_as_the_user_who_submitted_it(yard: Yard, accounts: tuple[str, ...]) -> None:
    ann, ben = User(yard, accounts[0]), User(yard, accounts[1])
    script = "id -un; umask; echo $GPUYARD_GPUS; touch made"
    handle = ann.submit("--gpus", "2", "--name", NASTY, "--", "sh", "-c", script)
    assert ann.run("wait", handle)[0] == 0
    assert ann.run("logs", handle)[1].split() == [ann.name, "0022", "2"]
    assert (ann.home / "made").owner() == ann.name
    status = json.loads(ann.run("status", handle, "--json")[1])
    assert (status["state"], status["user"], status["name"]) == ("succeeded", ann.name, NASTY)
    files = [*(ann.home / "own/jobs/slurm").rglob("*")]
    assert files
    for file in files:
        assert file.owner() == ann.name
        assert file.stat().st_mode & 0o077 == 0, file

    listed = ben.run("queue", "--all")
    assert handle not in listed[1], listed
    code, output, errors = ben.run("logs", handle)
    assert (code, output) == (2, "")
    assert handle in errors


def test_a_user_cannot_cancel_another_users_job(yard: Yard, accounts: tuple[str, ...]) -> None:
    ann, ben = User(yard, accounts[0]), User(yard, accounts[1])
    handle = ann.submit("--", "sleep", "600")
    until(
        lambda: json.loads(ann.run("status", handle, "--json")[1])["state"] == "running",
        lambda: "it runs",
    )
    # Not even with a copy of the records.
    shutil.copytree(ann.home / "own", ben.home / "own")
    for path in (ben.home / "own", *Path(ben.home / "own").rglob("*")):
        shutil.chown(path, ben.name, ben.name)
    ben.run("cancel", handle)
    assert json.loads(ann.run("status", handle, "--json")[1])["state"] == "running"
    assert ann.run("cancel", handle)[0] == 0
    assert ann.run("wait", handle)[0] == 1
    assert json.loads(ann.run("status", handle, "--json")[1])["state"] == "cancelled"
