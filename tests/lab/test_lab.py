"""Real labs: nodes reach each other over links of their rate, and nothing is left behind."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuyard import lab
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.lab import state
from tests.conftest import Cli
from tests.lab.conftest import namespaces, run_on

pytestmark = pytest.mark.usefixtures("can_make_labs")
LISTEN = """
import socket, sys
server = socket.create_server((sys.argv[1], 7000))
print("ready", flush=True)
print(server.accept()[1][0])
"""
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 7000), timeout=20)"


def reach(source: lab.Node, target: lab.Node) -> str:
    """The address that the target sees when the source connects to it."""
    listener = subprocess.Popen(
        target.command([sys.executable, "-c", LISTEN, target.address]),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert listener.stdout is not None
    assert listener.stdout.readline() == "ready\n"
    run_on(source, sys.executable, "-c", CONNECT, target.address)
    seen = listener.communicate(timeout=20)[0]
    return seen.strip()


def qdiscs(node: lab.Node) -> list[tuple[str, int]]:
    """Kind and rate of what shapes the node's way out."""
    from pyroute2 import IPRoute

    with IPRoute(netns=node.namespace) as route:
        (index,) = route.link_lookup(ifname=node.interface)
        return [
            (q.get_attr("TCA_KIND"), q.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"])
            for q in route.get_qdiscs(index=index)
        ]


def test_nodes_reach_each_other_in_a_network_of_their_own() -> None:
    before = namespaces()
    made = lab.up(lab.plan_lab(3, "1Gbit", name="three"))
    assert reach(made.nodes[0], made.nodes[2]) == made.nodes[0].address
    assert run_on(made.nodes[1], "hostname").strip() == made.nodes[1].address
    assert made.nodes[1].interface in run_on(made.nodes[1], "cat", "/proc/net/dev")
    assert not Path("/sys/class/net", made.nodes[0].interface, "master").exists()
    lab.down("three")
    assert namespaces() <= before
    assert not state.names()


def test_both_directions_of_each_link_have_its_rate_dilated() -> None:
    from pyroute2 import IPRoute

    made = lab.up(lab.plan_lab(2, "1Gbit", link_of={1: "100Mbit"}, dilation=10))
    assert qdiscs(made.nodes[0]) == [("tbf", 12_500_000)]
    assert qdiscs(made.nodes[1]) == [("tbf", 1_250_000)]
    assert [node.rate_bytes_per_second for node in made.nodes] == [125e6, 12.5e6]
    fabric = made.nodes[0].namespace.replace("node0", "fabric")
    with IPRoute(netns=fabric) as route:
        rates = {
            link.get_attr("IFLA_IFNAME"): q.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")[
                "rate"
            ]
            for link in route.get_links()
            for q in route.get_qdiscs(index=link["index"])
            if q.get_attr("TCA_KIND") == "tbf"
        }
    assert rates == {"port0": 12_500_000, "port1": 1_250_000}


def test_racks_are_joined_by_shaped_uplinks() -> None:
    from pyroute2 import IPRoute

    made = lab.up(lab.plan_lab(4, "1Gbit", racks=2, uplink="500Mbit"))
    assert reach(made.nodes[0], made.nodes[3]) == made.nodes[0].address
    fabric = made.nodes[0].namespace.replace("node0", "fabric")
    with IPRoute(netns=fabric) as route:
        names = {link["index"]: link.get_attr("IFLA_IFNAME") for link in route.get_links()}
        under = {
            link.get_attr("IFLA_IFNAME"): names[link.get_attr("IFLA_MASTER")]
            for link in route.get_links()
            if link.get_attr("IFLA_MASTER")
        }
        (uplink,) = route.link_lookup(ifname="up0")
        (bucket,) = route.get_qdiscs(index=uplink)
    assert under["port1"] == "rack0"
    assert under["port2"] == "rack1"
    assert under["up0"] == "rack0"
    assert under["down0"] == "core"
    assert bucket.get_attr("TCA_OPTIONS").get_attr("TCA_TBF_PARMS")["rate"] == 62_500_000


def test_two_labs_live_side_by_side() -> None:
    one = lab.up(lab.plan_lab(2, "1Gbit", name="one"))
    two = lab.up(lab.plan_lab(2, "1Gbit", name="two"))
    assert reach(one.nodes[0], one.nodes[1])
    lab.down("one")
    assert reach(two.nodes[0], two.nodes[1])
    assert lab.find("two") == two
    with pytest.raises(UserMistake, match="'one'"):
        lab.find("one")


def test_a_name_is_taken_once() -> None:
    made = lab.up(lab.plan_lab(1, "1Gbit"))
    with pytest.raises(UserMistake, match=r"already exists.*gpuyard lab down --name lab"):
        lab.up(lab.plan_lab(2, "1Gbit"))
    assert lab.find("lab") == made


def test_down_ends_what_runs_in_it() -> None:
    made = lab.up(lab.plan_lab(1, "1Gbit"))
    sleeper = subprocess.Popen(made.nodes[0].command(["sleep", "600"]))
    known = lab.labs()[0][0]
    deadline = time.monotonic() + 20
    while lab.processes_in(known.namespaces) != [sleeper.pid]:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    lab.down("lab")
    assert sleeper.wait(timeout=20) in (-signal.SIGTERM, -signal.SIGKILL)


def test_a_lab_in_use_is_not_taken_down() -> None:
    made = lab.up(lab.plan_lab(1, "1Gbit"))
    with made.held(), pytest.raises(GpuyardError, match="in use"):
        lab.down("lab")
    lab.down("lab")


def test_a_temporary_lab_goes_with_its_block_also_when_that_fails() -> None:
    before = namespaces()
    with pytest.raises(ZeroDivisionError), lab.temporary(lab.plan_lab(2, "1Gbit")) as made:
        assert reach(made.nodes[0], made.nodes[1])
        assert lab.remove_orphans() == []
        raise ZeroDivisionError
    assert namespaces() <= before
    assert not state.names()


MAKE_AND_WAIT = """
import time
from gpuyard import lab
with lab.temporary(lab.plan_lab(2, "1Gbit", name="owned")):
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_temporary_lab_whose_owner_died_is_removed_by_the_next_command(
    how: signal.Signals, cli: Cli, foreign: Path
) -> None:
    before = namespaces()
    owner = subprocess.Popen(
        [sys.executable, "-c", MAKE_AND_WAIT],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    assert len(namespaces() - before) == 3
    assert json.loads(cli("lab", "status", "--json").stdout)[0]["health"] == "up"
    owner.send_signal(how)
    owner.wait(timeout=20)
    owner.stdout.close()
    said = cli("lab", "status")
    assert ("'owned'" in said.stderr) == (how == signal.SIGKILL)
    assert namespaces() <= before
    assert foreign.exists()
    assert not state.names()


@pytest.mark.parametrize("made_before_the_kill", [0, 1, 7, 30])
def test_a_maker_killed_half_way_leaves_what_the_next_command_removes(
    made_before_the_kill: int, cli: Cli, home: Path, foreign: Path
) -> None:
    before = namespaces()
    maker = subprocess.Popen(
        [sys.executable, "-m", "gpuyard", "lab", "up", "--nodes", "60", "--link", "100Mbit"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (home / "labs" / "lab.json").exists() or (
        len(namespaces() - before) < made_before_the_kill
    ):
        assert maker.poll() is None
    maker.kill()
    maker.wait(timeout=20)
    deadline = time.monotonic() + 20
    cli("lab", "status")
    while not namespaces() <= before:  # its last child, which makes a namespace, may outlive it
        assert time.monotonic() < deadline
        cli("lab", "status")
    assert foreign.exists()
    assert not state.names()
    cli("lab", "up", "--nodes", "1")
    cli("lab", "down")


def test_ctrl_c_half_way_leaves_nothing(home: Path) -> None:
    before = namespaces()
    maker = subprocess.Popen(
        [sys.executable, "-m", "gpuyard", "lab", "up", "--nodes", "60", "--link", "100Mbit"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(namespaces() - before) < 5:
        assert maker.poll() is None
    maker.send_signal(signal.SIGINT)
    said = maker.communicate(timeout=60)[1]
    assert maker.returncode == 130
    assert "Traceback" not in said
    assert namespaces() <= before
    assert not state.names()


def test_what_a_reboot_took_is_forgotten(cli: Cli) -> None:
    from pyroute2 import netns

    lab.up(lab.plan_lab(2, "1Gbit"))
    ((known, _),) = lab.labs()
    netns.remove(known.namespaces[1])
    assert lab.labs()[0][1] == "damaged"
    with pytest.raises(GpuyardError, match="damaged"):
        lab.find("lab")
    for name in (known.namespaces[0], known.namespaces[2]):
        netns.remove(name)
    assert "reboot" in cli("lab", "status").stderr
    assert not state.names()


def test_latency_needs_netem_and_leaves_nothing_without() -> None:
    before = namespaces()
    plan = lab.plan_lab(2, "1Gbit", latency="5ms")
    try:
        made = lab.up(plan)
    except MissingRequirement as missing:
        assert "netem" in str(missing)
        assert namespaces() <= before
        assert not state.names()
    else:
        assert reach(made.nodes[0], made.nodes[1]) == made.nodes[0].address


def test_a_foreign_namespace_is_never_touched(foreign: Path, cli: Cli) -> None:
    identity = foreign.stat().st_ino
    cli("lab", "up", "--nodes", "2")
    cli("lab", "down", "--all")
    assert foreign.stat().st_ino == identity
