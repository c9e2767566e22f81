"""The key of a package repository is installed only if it has the pinned fingerprint."""

import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gpuyard.deploy.ansible.modules.apt_key_file import find_problem, list_fingerprints
from tests.deploy.rendering import ROLES, flatten_tasks

pytestmark = pytest.mark.skipif(shutil.which("gpg") is None, reason="needs gpg to make keys")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """Make two keys of different kinds; return the text and the fingerprint of each."""
    home = Path(tmp_path_factory.mktemp("g"))
    gpg = ("gpg", "--homedir", str(home), "--batch", "--quiet")

    def run(*arguments: str) -> str:
        return subprocess.run((*gpg, *arguments), capture_output=True, text=True, check=True).stdout

    keys = {}
    for name, kind in (("repository", "rsa2048"), ("stranger", "ed25519")):
        run("--passphrase", "", "--quick-generate-key", f"{name}@example.org", kind, "sign")
        listed = run("--with-colons", "--fingerprint", f"{name}@example.org")
        fingerprint = re.findall(r"^fpr:+([0-9A-F]{40}):", listed, re.MULTILINE)[0]
        keys[name] = run("--armor", "--export", f"{name}@example.org"), fingerprint
    return keys


def test_fingerprints_are_those_that_gpg_computes(keys: dict[str, tuple[str, str]]) -> None:
    for text, fingerprint in keys.values():
        assert list_fingerprints(text) == [fingerprint]
        assert find_problem(text, [fingerprint]) == ""


def test_a_file_with_another_key_or_one_more_is_refused(keys: dict[str, tuple[str, str]]) -> None:
    (text, fingerprint), (other, other_fingerprint) = keys["repository"], keys["stranger"]
    assert other_fingerprint in find_problem(other, [fingerprint])
    assert other_fingerprint in find_problem(text + other, [fingerprint])
    for junk in ("", "<html>", text[: len(text) // 2], text.replace("-----END", "-----EN")):
        assert find_problem(junk, [fingerprint])


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served").mkdir()
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_ansible_installs_the_pinned_key_and_no_other(
    keys: dict[str, tuple[str, str]], address: str, tmp_path: Path
) -> None:
    pytest.importorskip("ansible_runner")
    text, fingerprint = keys["repository"]
    served, dest = tmp_path / "served" / "gpgkey", tmp_path / "key.asc"
    arguments = {"url": f"{address}/gpgkey", "dest": str(dest), "fingerprints": [fingerprint]}
    play = [{"hosts": "localhost", "gather_facts": False, "tasks": [{"apt_key_file": arguments}]}]
    (tmp_path / "play.json").write_text(json.dumps(play))
    program = Path(sys.executable).parent / "ansible-playbook"
    python = f"ansible_python_interpreter={sys.executable}"

    def run() -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            (program, "-i", "localhost,", "-c", "local", "-e", python, tmp_path / "play.json"),
            env={**os.environ, "ANSIBLE_LIBRARY": str(ROLES.parent / "modules")},
            capture_output=True,
            text=True,
            check=False,
        )

    served.write_text(keys["stranger"][0])
    refused = run()
    assert refused.returncode != 0
    assert keys["stranger"][1] in refused.stdout
    assert not dest.exists()
    served.write_text(text)
    assert "changed=1" in run().stdout
    assert dest.read_text() == text
    assert dest.stat().st_mode & 0o777 == 0o644
    assert "changed=0" in run().stdout


def test_every_repository_that_a_role_adds_has_a_pinned_key() -> None:
    for file in ROLES.glob("*/tasks/*.yaml"):
        for task in flatten_tasks(YAML(typ="safe").load(file) or []):
            text = json.dumps(task)
            assert "deb" not in task.get("ansible.builtin.apt", {}), f"{file}: nobody signed it"
            # what is not an apt repository's is checked against a pinned key by gpgv
            checked = "ansible.builtin.get_url" not in task or "gpgv" in _programs(file)
            assert checked, f"{file}: pin what it downloads"
            for key in re.findall(r"signed-by=([^\] ]+)", text):
                keys = [t["apt_key_file"] for t in _tasks(file) if "apt_key_file" in t]
                assert key in {k["dest"] for k in keys if k["fingerprints"]}


def _programs(file: Path) -> list[str]:
    commands = [task.get("ansible.builtin.command", {}) for task in _tasks(file)]
    return [command["argv"][0] for command in commands if "argv" in command]


def _tasks(file: Path) -> list[dict[str, dict[str, str]]]:
    return list(flatten_tasks(YAML(typ="safe").load(file)))
