"""JupyterHub as the role `jupyter` configures it: two users log in with their own tokens and own their notebooks."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from gpuyard.deploy.verify.jupyter import _PROBE_HUB, evaluate_answer
from tests.conftest import MACHINE
from tests.deploy.hub_people import Person, processes_of
from tests.share.conftest import needs_root

TEMPLATE = "src/gpuyard/deploy/ansible/roles/jupyter/templates/hub_config.py.j2"
ROOT = Path(__file__).parents[2]
PEOPLE = ("gpuyard-ada", "gpuyard-bob")


@dataclass(frozen=True)
class Hub:
    base: str
    tokens: dict[str, str]
    process: "subprocess.Popen[bytes]"


@pytest.fixture
def people() -> Iterator[dict[str, str]]:
    """Create accounts with a token in their home directories, like the role."""
    tokens = {}
    try:
        for name in PEOPLE:
            subprocess.run(("useradd", "--create-home", "--shell", "/bin/bash", name), check=True)
            tokens[name] = f"token-of-{name}"
            file = Path("/home") / name / ".jupyter_token"
            file.write_text(tokens[name])
            file.chmod(0o600)
            shutil.chown(file, name)
        yield tokens
    finally:
        for name in PEOPLE:
            subprocess.run(("userdel", "--remove", name), check=False, capture_output=True)


@pytest.fixture
def hub(people: dict[str, str], tmp_path: Path) -> Iterator[Hub]:
    jinja2 = pytest.importorskip("jinja2")
    pytest.importorskip("jupyterhub")
    if shutil.which("configurable-http-proxy") is None:
        pytest.skip("configurable-http-proxy is not installed")
    port = _free_port()
    text = jinja2.Template((ROOT / TEMPLATE).read_text()).render(
        jupyter_hub_port=port,
        jupyter_prefix=str(tmp_path),
        gpuyard_users=[{"name": name} for name in people],
    )
    # a program that everybody may start, though not everybody can enter pytest's directory
    text = text.replace(f"{tmp_path}/venv", sys.prefix)
    text = text.replace("/var/lib/gpuyard/jupyterhub", str(tmp_path))
    text += f'\nc.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{_free_port()}"\n'
    text += f"c.JupyterHub.hub_port = {_free_port()}\n"
    config = tmp_path / "jupyter_config.py"
    config.write_text(text)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            (sys.executable, "-m", "jupyterhub", "--config", str(config)),
            cwd=tmp_path,
            # as the role does; where /usr/bin/node is not Debian's own, it has to be told of Debian's modules
            env={
                "PATH": f"{sys.prefix}/bin:/usr/bin:/bin",
                "HOME": "/root",
                "NODE_PATH": "/usr/share/nodejs",
            },
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _until(lambda: _answers(port), process)
        yield Hub(f"http://127.0.0.1:{port}", people, process)
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.terminate()
        process.terminate()
        process.wait(30)
        _until(lambda: not processes_of(PEOPLE), None)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1).close()
        return Person(f"http://127.0.0.1:{port}").get("/hub/api/")[0] == 200
    return False


def _until(condition: Callable[[], bool], process: "subprocess.Popen[bytes] | None") -> None:
    end = time.monotonic() + 90
    while not condition():
        assert process is None or process.poll() is None, "JupyterHub has ended"
        assert time.monotonic() < end
        time.sleep(0.2)


@MACHINE
@needs_root
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_everybody_has_a_notebook_of_their_own_behind_their_own_token(hub: Hub) -> None:
    ada, bob = PEOPLE
    stranger = Person(hub.base)
    assert stranger.get("/hub/api/user")[0] == 403
    assert stranger.log_in(ada, "guessed") == 403
    assert stranger.log_in(ada, "") == 403
    assert stranger.log_in(ada, hub.tokens[bob]) == 403
    assert stranger.log_in("root", "") == 403

    person = Person(hub.base)
    assert person.log_in(ada, hub.tokens[ada]) == 200
    status, body = person.get("/hub/api/user")
    assert (status, json.loads(body)["name"]) == (200, ada)
    other = Person(hub.base)
    assert other.log_in(bob, hub.tokens[bob]) == 200
    assert other.start_notebook(ada) in (403, 404)
    assert processes_of(PEOPLE) == {}
    if _everybody_can_run_this_python(ada):
        assert person.start_notebook(ada) in (201, 202)
        _until(lambda: person.get(f"/user/{ada}/lab")[0] == 200, hub.process)
        assert "jupyterhub-singleuser" in processes_of(PEOPLE)[ada]
        assert other.get(f"/user/{ada}/lab")[0] == 403
        assert set(processes_of(PEOPLE)) == {ada}


@MACHINE
@needs_root
@pytest.mark.soak
@pytest.mark.timeout(300)
def test_verify_logs_in_as_a_person_does(hub: Hub) -> None:
    argv = [sys.executable, "-c", _PROBE_HUB, hub.base, PEOPLE[0]]
    answer = json.loads(subprocess.run(argv, capture_output=True, check=True, text=True).stdout)
    assert answer == {"without": 403, "with": 200, "mode": "0o600"}
    assert evaluate_answer(answer, "head", hub=True).ok
    (Path("/home") / PEOPLE[0] / ".jupyter_token").chmod(0o644)
    answer = json.loads(subprocess.run(argv, capture_output=True, check=True, text=True).stdout)
    assert "others can read the token" in evaluate_answer(answer, "head", hub=True).detail


def _everybody_can_run_this_python(user: str) -> bool:
    try:
        done = subprocess.run(
            (sys.executable, "-c", "import jupyterhub"),
            user=user,
            cwd="/",
            env={"HOME": "/nonexistent"},
            capture_output=True,
            check=False,
        )
    except PermissionError:
        return False
    return done.returncode == 0
