"""Over a real ssh, a host that is down is named, and the others are checked without it."""

import json
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.ssh_hosts import HOSTS, ssh_hosts

DOWN = "127.0.0.3"  # the sshd of the tests does not listen there


def test_a_host_that_is_down_is_named_and_the_others_are_checked(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with ssh_hosts(tmp_path, temporary) as programs:
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        hosts = ",".join((DOWN, *HOSTS))
        arguments = ("accept", "3x1xt4@100M", "--hosts", hosts, "--checks", "pairs", "--json")
        done = cli(*arguments, status=1)
    record = json.loads(done.stdout)
    # the test hosts have no GPU, so they fail too
    subjects = {n["name"]: [f["subject"] for f in n["findings"]] for n in record["nodes"]}
    assert subjects == {DOWN: ["node"], HOSTS[0]: ["GPUs"], HOSTS[1]: ["GPUs"]}
    (pair,) = record["pairs"]
    assert (pair["a"], pair["b"]) == (0, 1)
    assert min(pair["forward"], pair["backward"]) > 0
