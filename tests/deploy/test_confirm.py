"""Which removals of machines need the user's agreement."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuyard.cli.deploy
from gpuyard.cli.deploy.confirm import DeletionNotConfirmed, check_loss
from gpuyard.deploy import deployment
from gpuyard.deploy.ansible.run import PlayRecap
from gpuyard.deploy.deployment import load_deployment
from gpuyard.deploy.terraform.run import Changes
from tests.conftest import Cli
from tests.deploy.conftest import Up


def test_storage_outside_the_head_outlives_replaced_machines(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, file = load_deployment(Path(up.file)), Path(up.file)
    hosts = loaded.state.hosts()
    (up.shared / "x").write_text("12345")

    def check(*, removes_storage: bool) -> None:
        check_loss(loaded, hosts, file, yes=False, force=True, removes_storage=removes_storage)

    with pytest.raises(DeletionNotConfirmed, match="1 file, 5 B"):
        check(removes_storage=False)
    monkeypatch.setattr(type(loaded.target), "shared_is_on_head", False)
    check(removes_storage=False)
    with pytest.raises(DeletionNotConfirmed, match="1 file, 5 B"):
        check(removes_storage=True)


@pytest.fixture
def answers(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[list[Callable[[], object]], list[str]]]:
    """What happens while the user reads each question, before the answer is yes; and the removals that were not refused."""
    happen: list[Callable[[], object]] = []
    removed: list[str] = []
    hosts = load_deployment(Path(up.file)).state.hosts()

    def remove(
        *_: Any, approve: Callable[..., None], restart: tuple[str, ...], **__: Any
    ) -> tuple[Changes, PlayRecap]:
        removed.extend(f"restart {name}" for name in restart)
        approve(hosts)
        removed.append("up")
        return Changes(), PlayRecap({})

    def down(*_: Any) -> list[str]:
        removed.append("down")
        return []

    monkeypatch.setattr(deployment, "up", remove)
    monkeypatch.setattr(deployment, "down", down)
    monkeypatch.setattr(gpuyard.cli.deploy, "ask", lambda *_: happen.pop(0)())
    monkeypatch.setattr(type(load_deployment(Path(up.file)).target), "module", lambda _: "a module")
    (up.shared / "x").write_text("12345")
    yield happen, removed
    assert happen == []  # every expected question was asked, and no other


Answers = tuple[list[Callable[[], object]], list[str]]


@pytest.mark.parametrize("verb", ["up", "down"])
def test_a_job_that_begins_while_the_user_is_asked_is_not_stopped(
    cli: Cli, up: Up, answers: Answers, verb: str
) -> None:
    happen, removed = answers
    started: list[subprocess.Popen[bytes]] = []
    happen.append(lambda: started.append(subprocess.Popen(("sleep", "7654.3"), cwd=up.shared)))
    try:
        refused = cli("deploy", verb, up.file, status=1).stderr
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert "sleep 7654.3" in refused and "--force" in refused
    assert removed == []


@pytest.mark.parametrize("verb", ["up", "down"])
def test_the_user_is_asked_again_only_if_more_would_be_lost(
    cli: Cli, up: Up, answers: Answers, verb: str
) -> None:
    happen, removed = answers
    happen += [lambda: (up.shared / "y").write_text("new"), (up.shared / "y").unlink]
    cli("deploy", verb, up.file)
    assert removed == [verb]


def test_a_machine_is_restarted_once_although_the_user_is_asked(
    cli: Cli, up: Up, answers: Answers
) -> None:
    happen, removed = answers
    happen.append(lambda: None)
    cli("deploy", "up", up.file, "--restart", "node0")
    assert removed == ["restart node0", "up"]
