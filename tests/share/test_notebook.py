"""Notebooks on leases, with a stand-in for JupyterLab, and with a real JupyterLab in `make soak`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import MissingRequirement
from gpuyard.share.caller import Caller
from gpuyard.share.client import LocalClient
from gpuyard.share.clock import iso_timestamp
from gpuyard.share.models import LeaseRequest, ReservationRequest
from gpuyard.share.notebook.jupyter import find_command
from gpuyard.share.notebook.records import Notebook, notebooks_directory, write_record
from gpuyard.share.notebook.run import list_running
from tests.conftest import Cli
from tests.other_users import public_gpuyard
from tests.share.conftest import Start, acting_as, holders, needs_root

Who = Callable[[], dict[str, Any]]
Usage = Callable[[], list[dict[str, Any]]]
STAND_IN = Path(__file__).parent / "stand_in_jupyterlab.py"
BUSY_CELL = Path(__file__).parent / "busy_cell.py"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment with the stand-in as its JupyterLab."""
    return make_environment(tmp_path / "environment", with_jupyterlab=True)


def make_environment(directory: Path, *, with_jupyterlab: bool) -> Path:
    modules = directory / "modules"
    modules.mkdir(parents=True)
    if with_jupyterlab:
        (modules / "jupyterlab.py").symlink_to(STAND_IN)
    python = directory / "bin" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{modules}" exec /usr/bin/env python3 -S "$@"\n')
    python.chmod(0o755)
    return directory


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """List the user's notebooks."""
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "mine.ipynb").write_text("{}")
    return directory


def wait_for_address(process: "subprocess.Popen[str]") -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return dict(json.loads(line))


def ask(notebook: dict[str, Any], path: str, token: str | None) -> int:
    headers = {"Authorization": f"token {token}"} if token else {}
    request = urllib.request.Request(f"http://127.0.0.1:{notebook['port']}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_a_notebook_holds_its_gpus_and_hides_its_token(
    start: Start, who: Who, usage: Usage, cli: Cli, environment: Path, files: Path
) -> None:
    with_it = ("--python", str(environment), "--dir", str(files), "--json")
    process = start("notebook", "--gpus", "2", "--for", "1h", *with_it)
    notebook = wait_for_address(process)
    token = notebook["url"].partition("token=")[2]
    assert len(token) >= 32
    port = notebook["port"]
    assert notebook["tunnel"].startswith(f"ssh -L {port}:127.0.0.1:{port} ")
    assert holders(who()) == {0: [notebook["id"]], 1: [notebook["id"]]}
    recorded = json.loads((files / "seen.json").read_text())
    assert (recorded["CUDA_VISIBLE_DEVICES"], recorded["GPUYARD_LEASE"]) == (
        "0,1",
        notebook["id"],
    )
    assert token not in " ".join(recorded["argv"])
    assert token not in (files / "seen.json").read_text() + json.dumps(who())
    kept = notebooks_directory() / notebook["id"]
    assert kept.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in kept.iterdir()} == {0o600}
    assert (ask(notebook, "/api/status", None), ask(notebook, "/api/status", token)) == (403, 200)

    second = start("notebook", *with_it)
    other = wait_for_address(second)
    assert other["gpus"] == [2]
    assert other["url"].partition("token=")[2] != token
    listed = json.loads(cli("notebook", "list", "--json").stdout)["notebooks"]
    assert {notebook["id"] for notebook in listed} == {notebook["id"], other["id"]}
    assert notebook["tunnel"] in cli("notebook", "list").stdout

    stopped = json.loads(cli("notebook", "stop", notebook["id"], "--json").stdout)
    assert stopped["gpus"] == [0, 1]
    assert token not in process.communicate()[1]
    assert holders(who()) == {2: [other["id"]]}
    assert not kept.exists()
    second.send_signal(signal.SIGTERM)
    second.wait(60)
    assert holders(who()) == {}
    assert {lease["ended"] for lease in usage()} == {"released", "finished"}
    assert other["id"] in cli("notebook", "stop", other["id"], status=2).stderr
    assert (files / "mine.ipynb").read_text() == "{}"


def test_an_idle_notebook_gives_its_gpus_back_and_a_busy_or_used_one_does_not(
    start: Start, who: Who, environment: Path, files: Path
) -> None:
    (files / "busy").touch()
    process = start(
        "notebook", "--idle", "3s", "--python", str(environment), "--dir", str(files), "--json"
    )
    notebook = wait_for_address(process)
    time.sleep(4.5)
    assert holders(who()) == {0: [notebook["id"]]}
    (files / "activity").write_text("0")
    (files / "busy").unlink()
    for number in range(12):  # no kernel is busy, but somebody uses it
        (files / "activity").write_text(str(number))
        time.sleep(0.4)
    assert holders(who()) == {0: [notebook["id"]]}
    output = process.communicate(timeout=30)[1]
    assert "gives its GPUs back" in output
    assert holders(who()) == {}
    assert (files / "mine.ipynb").exists()


def test_a_background_notebook_survives_its_terminal(
    start: Start, who: Who, cli: Cli, usage: Usage, environment: Path, files: Path
) -> None:
    with_it = ("--background", "--python", str(environment), "--dir", str(files), "--json")
    process = start("notebook", *with_it)
    output, error_output = process.communicate(timeout=60)
    assert process.returncode == 0 and "keeps running in the background" in error_output
    notebook = json.loads(output)
    token = notebook["url"].partition("token=")[2]
    assert ask(notebook, "/api/status", token) == 200
    assert holders(who()) == {0: [notebook["id"]]}
    log = notebooks_directory() / "notebook.log"
    assert log.stat().st_mode & 0o777 == 0o600 and token not in log.read_text()
    busy = start("notebook", *with_it, "--now", "--gpus", "8")
    assert "`gpuyard who`" in busy.communicate(timeout=60)[1] and busy.returncode == 75
    cli("notebook", "stop", notebook["id"])
    assert holders(who()) == {}
    (files / "open").touch()
    refused = start("notebook", *with_it)
    assert "without its token" in refused.communicate(timeout=60)[1] and refused.returncode == 1
    assert holders(who()) == {}


def test_a_server_that_answers_without_its_token_is_stopped(
    start: Start, who: Who, environment: Path, files: Path
) -> None:
    (files / "open").touch()
    process = start("notebook", "--python", str(environment), "--dir", str(files))
    out, output = process.communicate(timeout=30)
    assert "without its token" in output
    assert "http" not in out
    assert holders(who()) == {}


def test_without_jupyterlab_the_install_command_is_shown_and_nothing_is_leased(
    cli: Cli, share: Path, tmp_path: Path, usage: Usage
) -> None:
    bare = make_environment(tmp_path / "bare", with_jupyterlab=False)
    output = cli("notebook", "--python", str(bare), status=1).stderr
    assert f"{bare}/bin/python -m venv" in output, "this Python has no pip"
    (bare / "modules/pip.py").touch()
    output = cli("notebook", "--python", str(bare), status=1).stderr
    managed = Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists()
    assert f"{bare}/bin/python -m {'venv' if managed else 'pip install jupyterlab'}" in output
    if list(Path("/usr/lib").glob("python3*/EXTERNALLY-MANAGED")):
        output = cli("notebook", "--python", "/usr/bin/python3", status=1).stderr
        assert "/usr/bin/python3 -m pip" not in output, "its pip refuses to install packages"
    assert "/nowhere" in cli("notebook", "--python", "/nowhere", status=2).stderr
    assert "/nowhere" in cli("notebook", "--dir", "/nowhere", status=2).stderr
    assert usage() == []


def test_a_killed_notebook_is_not_listed_and_its_token_is_deleted(
    start: Start, cli: Cli, environment: Path, files: Path
) -> None:
    with_it = ("--python", str(environment), "--dir", str(files), "--json")
    process = start("notebook", *with_it)
    notebook = wait_for_address(process)
    cli("release", notebook["id"])
    process.wait(60)
    (notebooks_directory() / notebook["id"]).mkdir(exist_ok=True)
    assert json.loads(cli("notebook", "list", "--json").stdout) == {"notebooks": []}


def test_a_module_in_the_current_directory_is_not_mistaken_for_jupyterlab(
    tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jupyterlab.py").write_text("open('was-run', 'w')")
    (tmp_path / "runpy.py").write_text("open('was-run', 'w')")
    command = find_command(str(environment))
    subprocess.run([*command, "--no-such-option"], capture_output=True, check=False, timeout=60)
    with pytest.raises(MissingRequirement):
        find_command(str(make_environment(tmp_path / "bare", with_jupyterlab=False)))
    assert not (tmp_path / "was-run").exists()


@pytest.fixture
def jupyter(tmp_path: Path) -> Path:
    """An environment with a real JupyterLab: $GPUYARD_TEST_JUPYTER, or a new one (about 250 MB)."""
    named = os.environ.get("GPUYARD_TEST_JUPYTER")
    if named:
        return Path(named)
    directory = tmp_path / "jupyter-environment"
    subprocess.run((sys.executable, "-m", "venv", str(directory)), check=True)
    install = (directory / "bin" / "pip", "install", "--quiet", "jupyterlab", "ipykernel")
    if subprocess.run(install, capture_output=True, check=False, cwd=tmp_path).returncode != 0:
        pytest.skip("jupyterlab and ipykernel can't be installed here")
    return directory


@pytest.mark.soak
def test_a_real_jupyter_runs_while_a_kernel_is_busy_whatever_the_users_settings(
    start: Start,
    who: Who,
    files: Path,
    jupyter: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tmp_path / "jupyter"
    own.mkdir()
    settings = {"IdentityProvider": {"token": ""}, "ServerApp": {"ip": "0.0.0.0"}}  # noqa: S104
    (own / "jupyter_server_config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(own))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    process = start(
        "notebook", "--idle", "4s", "--python", str(jupyter), "--dir", str(files), "--json"
    )
    notebook = wait_for_address(process)
    token = notebook["url"].partition("token=")[2]
    assert (ask(notebook, "/api/kernels", None), ask(notebook, "/api/kernels", token)) == (403, 200)
    listening = subprocess.run(("ss", "-ltn"), capture_output=True, text=True, check=False).stdout
    assert f"0.0.0.0:{notebook['port']}" not in listening
    busy = (str(jupyter / "bin" / "python"), str(BUSY_CELL), str(notebook["port"]), "9")
    subprocess.run(busy, input=token, text=True, check=True, timeout=60)
    began = time.monotonic()
    output = process.communicate(timeout=90)[1]
    assert "gives its GPUs back" in output
    assert token not in output
    assert time.monotonic() - began > 7, "it was ended while its kernel was busy"
    assert holders(who()) == {}


def test_a_notebook_is_listed_with_the_end_that_a_reservation_set(share: Path) -> None:
    client = LocalClient(share)
    status, lock = client.ask(LeaseRequest(8))
    record = Notebook(status.lease.id, 1, "t", "/", status.lease.gpus, None, "u", "h")
    write_record(record, "{}\n")
    assert [notebook.until for notebook in list_running(client)] == [None]
    start = time.time() + 2 * 3600
    acting_as(client.broker, Caller(65534, 65534, os.getpid())).reserve(
        ReservationRequest(1, start, start + 60)
    )
    (listed,) = list_running(client)
    assert listed.until == iso_timestamp(start)
    os.close(lock)
    client.close()


# Another user binds the port, or asks the server with the right token, and prints what came of it.
ATTACK = """
import socket, sys
port, token = int(sys.argv[1]), sys.argv[2]
try:
    socket.create_server(("127.0.0.1", port))
    print("bound the port")
except OSError:
    with socket.create_connection(("127.0.0.1", port), 20) as connection:
        try:
            connection.sendall(f"GET /api/status HTTP/1.0\\r\\nAuthorization: token {token}\\r\\n\\r\\n".encode())
            print("answered" if connection.recv(100) else "closed")
        except ConnectionError:
            print("closed")
"""


@needs_root
def test_another_user_can_neither_take_the_port_before_the_server_starts_nor_reach_it(
    start: Start, environment: Path, files: Path
) -> None:
    def attack() -> str:
        command = (public_gpuyard().python, "-c", ATTACK, str(record["port"]), record["token"])
        return subprocess.run(
            command, user=65534, cwd="/", capture_output=True, text=True, check=True
        ).stdout.strip()

    (files / "slow").touch()
    process = start("notebook", "--python", str(environment), "--dir", str(files), "--json")
    while not (files / "seen.json").exists():
        assert process.poll() is None
        time.sleep(0.05)
    (record_file,) = notebooks_directory().glob("*/notebook.json")
    record = json.loads(record_file.read_text())
    assert attack() == "closed"
    (files / "slow").unlink()
    notebook = wait_for_address(process)
    assert notebook["port"] == record["port"]
    assert attack() == "closed"
    assert ask(notebook, "/api/status", record["token"]) == 200


def test_a_port_that_gpuyard_no_longer_holds_is_not_shown(
    start: Start, who: Who, cli: Cli, environment: Path, files: Path
) -> None:
    process = start("notebook", "--python", str(environment), "--dir", str(files), "--json")
    notebook = wait_for_address(process)
    token = notebook["url"].partition("token=")[2]
    process.kill()  # not Jupyter, which keeps the GPUs
    process.wait(60)
    try:
        assert holders(who()) == {0: [notebook["id"]]}
        listed = json.loads(cli("notebook", "list", "--json").stdout)["notebooks"]
        assert [(n["id"], n["url"], n["tunnel"]) for n in listed] == [(notebook["id"], None, None)]
        output = cli("notebook", "list").stdout
        assert token not in output and f"gpuyard notebook stop {notebook['id']}" in output
        cli("notebook", "stop", notebook["id"])
        assert holders(who()) == {}
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
