"""`gpuyard lab` as its users run it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.lab.conftest import namespaces


@pytest.mark.usefixtures("can_make_labs")
def test_up_status_exec_down(cli: Cli) -> None:
    before = namespaces()
    up = cli("lab", "up", "--nodes", "2", "--link", "1Gbit", "--link-of", "1=100Mbit", "--json")
    assert [n["rate_bytes_per_second"] for n in json.loads(up.stdout)["nodes"]] == [125e6, 12.5e6]
    assert len(namespaces() - before) == 3
    assert "is up" in cli("lab", "status").stdout
    said = cli("lab", "exec", "node1", "--", "sh", "-c", "hostname; exit 3", status=3)
    assert said.stdout == "10.77.0.2\n"
    cli("lab", "exec", "1", "--", "no-such-program", status=127)
    assert "node0, node1" in cli("lab", "exec", "7", "--", "true", status=2).stderr
    assert "removed" in cli("lab", "down").stderr
    assert namespaces() <= before
    assert json.loads(cli("lab", "status", "--json").stdout) == []
    cli("lab", "down", status=2)


@pytest.mark.usefixtures("can_make_labs")
def test_with_several_labs_one_is_named(cli: Cli) -> None:
    cli("lab", "up", "--name", "one", "--nodes", "1")
    cli("lab", "up", "--name", "two", "--nodes", "1")
    assert "one, two" in cli("lab", "exec", "0", "--", "true", status=2).stderr
    cli("lab", "exec", "--name", "two", "0", "--", "true")
    assert "did you mean 'two'" in cli("lab", "down", "--name", "twoo", status=2).stderr
    cli("lab", "down", "--all")


def test_a_dry_run_makes_nothing(cli: Cli, home: Path) -> None:
    said = cli("lab", "up", "--nodes", "8", "--link", "10Gbit", "--dilation", "10", "--dry-run")
    assert "dilated 10 times" in said.stdout
    plan = json.loads(cli("lab", "up", "--dry-run", "--json").stdout)
    too_much = cli("lab", "up", "--dry-run", "--json", "--link", "4Tbit")
    assert json.loads(too_much.stdout)["nodes"]
    assert "--dilation" in too_much.stderr
    assert [node["address"] for node in plan["nodes"]] == ["10.77.0.1", "10.77.0.2"]
    assert not (home / "labs").exists()


def test_without_rights_it_is_one_sentence(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("setpriv, which takes root's rights away, is not here")
        without = [setpriv, "--bounding-set=-all", "--inh-caps=-all"]
    else:
        without = []
    for command in (["up"], ["exec", "0", "--", "true"], ["down"]):
        done = subprocess.run(
            [*without, sys.executable, "-m", "gpuyard", "lab", *command],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stderr
        assert "needs root" in done.stderr
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("link_of", ["3", "x=1Gbit", "7=1Gbit"])
def test_a_mistake_is_a_sentence(link_of: str, cli: Cli) -> None:
    said = cli("lab", "up", "--nodes", "2", "--link-of", link_of, "--dry-run", status=2)
    assert said.stderr.startswith("gpuyard: ")


def test_a_damaged_state_blocks_no_other_lab_and_can_be_put_aside(
    cli: Cli, home: Path, can_make_labs: None, foreign: Path
) -> None:
    cli("lab", "up", "--name", "good")
    damaged = home / "labs" / "bad.json"
    damaged.write_text('{"plan": ')
    said = cli("lab", "status")
    assert "good" in said.stdout
    assert "bad.json" in said.stderr
    assert cli("lab", "exec", "node0", "--name", "good", "--", "true").returncode == 0
    aside = cli("lab", "down", "--name", "bad", status=1)
    assert "bad.unreadable" in aside.stderr and "ip netns delete" not in aside.stderr
    assert not damaged.exists()
    assert damaged.with_suffix(".unreadable").read_text() == '{"plan": '
    assert "bad.json" not in cli("lab", "status").stderr

    from pyroute2 import netns

    (home / "labs" / "good.json").write_text("[]")
    before = namespaces()
    left = cli("lab", "down", "--name", "good", status=1)
    assert "ip netns delete" in left.stderr
    assert namespaces() == before  # nobody knows any more which of them were ours
    for name in before:
        if name.startswith("gpuyard-good-"):
            assert name in left.stderr
            netns.remove(name)
    assert foreign.exists()
