"""Only the ranks of a run meet: the store listens on one address, knows a secret, and nothing is unpickled."""

import contextlib
import logging
import os
import pickle
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist

from gpuyard.errors import GpuyardError
from gpuyard.lab import plan_lab
from gpuyard.run import ranks, store
from gpuyard.run.channel import Channel, NotOfThisRun, admit, join
from gpuyard.run.launch import Launcher, crews
from gpuyard.run.peers import MOST_TEXT_BYTES, Peers
from gpuyard.run.places import Hosts, LabNodes, reach_hosts
from gpuyard.run.protocol import STRANGER, Rendezvous
from gpuyard.run.store import RunStore, StoreKeeper, addresses
from tests.conftest import MACHINE
from tests.run.sum_ranks import SumJob, summed
from tests.ssh_hosts import HOSTS, ssh_hosts

pytestmark = MACHINE
SECRET = "5ec2e7" * 10
Wire = tuple[Channel, Channel, socket.socket]


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "run"))


def point(port: int, **more: Any) -> Rendezvous:
    told = {"address": "127.0.0.1", "port": port, "others": (), "secret": SECRET, **more}
    return Rendezvous.model_validate(told)


@pytest.fixture
def kept() -> Iterator[Rendezvous]:
    """Where a store is kept, by this process."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        where = point(int(probe.getsockname()[1]))
    keeper = StoreKeeper(where)
    yield where
    keeper.close()


@pytest.fixture
def reach(kept: Rendezvous) -> Iterator[Callable[..., RunStore]]:
    """The store that is kept, as a rank reaches it."""
    with contextlib.ExitStack() as until_end:

        def reach(seconds: float = 5) -> RunStore:
            return until_end.enter_context(contextlib.closing(RunStore(kept, seconds)))

        yield reach


def test_the_store_does_for_torch_what_its_own_does(reach: Callable[..., RunStore]) -> None:
    one, other = reach(), reach()
    theirs = dist.PrefixStore("x", other)  # type: ignore[attr-defined]  # through C++
    theirs.set("key", b"\x00\xff")  # type: ignore[arg-type]
    assert one.get("x/key") == b"\x00\xff"
    assert theirs.multi_get(["key", "key"]) == [b"\x00\xff"] * 2
    assert [one.add("count", 2), other.add("count", 3)] == [2, 5]
    assert one.get("count") == b"5"
    assert one.compare_set("new", "", "first") == b"first"
    assert one.compare_set("new", "second", "third") == b"first"
    assert one.compare_set("new", "first", "third") == b"third"
    assert one.check(["new", "count"])
    assert not one.check(["new", "nowhere"])
    assert one.num_keys() == 3
    assert one.delete_key("new")
    assert not other.delete_key("new")
    threading.Timer(0.2, lambda: other.set("late", "now")).start()
    assert one.get("late") == b"now"
    one.set_timeout(timedelta(seconds=0.1))
    with pytest.raises(dist.DistStoreError, match="timed out"):
        one.get("never")


def test_the_store_listens_on_its_address_alone(kept: Rendezvous) -> None:
    socket.create_connection(("127.0.0.1", kept.port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", kept.port))


@pytest.mark.parametrize(
    "knock",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, bytes(range(256)) * 40],
    ids=["silent", "browser", "zeros", "noise"],
)
def test_who_does_not_know_the_secret_is_turned_away_and_told_of(
    kept: Rendezvous,
    reach: Callable[..., RunStore],
    knock: bytes,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = reach()
    stranger = socket.create_connection(("127.0.0.1", kept.port), source_address=("127.0.0.9", 0))
    with stranger, contextlib.suppress(OSError):  # it may be let go at any time
        stranger.sendall(knock)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(4096):
            pass
    before.set("still", "there")
    assert reach().get("still") == b"there"
    deadline, said = time.monotonic() + 30, ""
    while STRANGER not in said:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        said += capfd.readouterr().err
    assert said == f"{STRANGER}127.0.0.9\n"


def test_torchs_own_client_and_another_runs_rank_get_nothing(kept: Rendezvous) -> None:
    with pytest.raises(dist.DistError):
        dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", kept.port, is_master=False, timeout=timedelta(seconds=2)
        )
    with pytest.raises(GpuyardError, match="where the ranks meet"):
        RunStore(kept.model_copy(update={"secret": "another"}), 0.1)


def test_strangers_that_wait_at_the_door_keep_nobody_out(
    kept: Rendezvous, reach: Callable[..., RunStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.run.channel.HANDSHAKE_SECONDS", 1.0)
    with contextlib.ExitStack() as until_end:
        for _ in range(200):
            until_end.enter_context(socket.create_connection(("127.0.0.1", kept.port)))
        reach(60).set("in", "yes")


def test_a_rank_tells_nothing_to_who_only_poses_as_the_store() -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pose() -> None:
            connection, _ = impostor.accept()
            with connection:
                connection.sendall(b"gpuyard run 1\n" + bytes(32))
                heard.append(connection.recv(4096))
                connection.sendall(bytes(32))

        threading.Thread(target=pose, daemon=True).start()
        with pytest.raises(GpuyardError, match="does not know the run's secret"):
            RunStore(point(impostor.getsockname()[1]), 0)
    assert len(heard[0]) == 64  # a random number and a proof
    assert SECRET.encode() not in heard[0]


@pytest.fixture
def wire() -> Iterator[Wire]:
    """The channel of a rank, that of the store, and the rank's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        found: list[Channel] = []
        keeper = threading.Thread(target=lambda: found.append(admit(theirs, SECRET)))
        keeper.start()
        joined = join(ours, SECRET)
        keeper.join()
        yield joined, found[0], ours


class Tap:
    """Takes down what would have gone over the wire."""

    def __init__(self) -> None:
        self.sent = b""

    def sendall(self, data: bytes) -> None:
        self.sent += data


def test_messages_can_be_neither_repeated_nor_changed(wire: Wire) -> None:
    rank, keeper, raw = wire
    tap: Any = Tap()
    Channel(tap, rank._sending_key, b"").send(b"hello")
    raw.sendall(tap.sent)
    assert keeper.receive() == b"hello"
    raw.sendall(tap.sent)
    with pytest.raises(NotOfThisRun, match="changed on its way"):
        keeper.receive()


def test_a_message_has_a_most_size(wire: Wire) -> None:
    _, keeper, raw = wire
    raw.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(NotOfThisRun, match="is more than"):
        keeper.receive()


@pytest.mark.parametrize(
    ("names", "others", "chosen"),
    [
        ({"a": "192.0.2.1"}, (), ["192.0.2.1"]),
        # Debian's way: a host has its own name for its loopback
        ({"a": "127.0.1.1", "b": "192.0.2.2"}, ("b",), ["192.0.2.99", "127.0.1.1"]),
        # its public address is the router's
        ({"a": "203.0.113.1", "b": "192.0.2.2"}, ("b",), ["203.0.113.1", "192.0.2.99"]),
        ({"a": "127.0.0.1"}, ("nowhere",), ["127.0.0.1"]),
        ({}, (), []),
    ],
)
def test_the_first_host_listens_on_its_own_address(
    monkeypatch: pytest.MonkeyPatch,
    names: dict[str, str],
    others: tuple[str, ...],
    chosen: list[str],
) -> None:
    def resolve(name: str, port: int, **_: Any) -> Any:
        if name not in names:
            raise socket.gaierror
        return [(socket.AF_INET, None, None, "", (names[name], port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(store, "_source_towards", lambda _family, _address: "192.0.2.99")
    found = addresses(point(1, address="a", others=others))
    assert [address[0] for _, address in found] == chosen


def test_an_address_that_is_none_of_its_own_is_a_sentence() -> None:
    with pytest.raises(GpuyardError, match=r"can't meet at port 1 of 192\.0\.2\.1: Cannot assign"):
        StoreKeeper(point(1, address="192.0.2.1"))


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with ssh_hosts(tmp_path, temporary) as programs:
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        yield reach_hosts(HOSTS, ranks_per_node=2)


class Onlooker:
    """Looks at all processes of a run while it lasts, and knocks where its ranks meet."""

    def __init__(self, address: str, port: int) -> None:
        self.seen: dict[int, str] = {}
        self.listening: set[str] = set()
        self.knocked = 0
        self._where = (address, port)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Onlooker":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.05):
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    argv = " ".join(process.cmdline())
                    if "sum_ranks" not in argv or "pytest" in argv:
                        continue
                    shown = argv + str(process.environ())
                    # other tests, of this checkout or another, have such ranks too
                    if os.getpid() not in {above.pid for above in process.parents()}:
                        continue
                    self.seen[process.pid] = shown
                    for connection in process.net_connections("inet"):
                        if connection.status == psutil.CONN_LISTEN:
                            self.listening.add(connection.laddr.ip)
            with contextlib.suppress(OSError):
                socket.create_connection(self._where, 1, ("127.0.0.9", 0)).close()
                self.knocked += 1


@pytest.mark.parametrize("launcher", [pytest.param("direct", marks=pytest.mark.soak), "torchrun"])
def test_nobody_else_gets_into_a_run_over_hosts_or_sees_its_secret(
    hosts: Hosts,
    launcher: Launcher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("gpuyard.run.ranks.secrets.token_hex", lambda _bytes: SECRET)
    with caplog.at_level(logging.WARNING, "gpuyard"), Onlooker(HOSTS[0], hosts.port) as onlooker:
        said = summed(hosts, 4, launcher)
    assert said.total == 0b1111
    assert onlooker.listening
    assert onlooker.listening <= {"127.0.0.1", "127.0.0.2"}
    assert len(onlooker.seen) >= 4
    assert not any(SECRET in shown for shown in onlooker.seen.values())
    assert onlooker.knocked
    assert [record.getMessage() for record in caplog.records] == [
        "gpuyard: a stranger at 127.0.0.9 tried to join this run and was turned away: it did not know "
        "the run's secret"
    ]


@pytest.mark.usefixtures("can_make_labs")
@pytest.mark.parametrize("launcher", ["direct", pytest.param("torchrun", marks=pytest.mark.soak)])
def test_the_ranks_of_a_lab_listen_on_the_addresses_of_their_nodes(launcher: Launcher) -> None:
    plan = plan_lab(2, "1 Gbit/s", name="test-doors")
    with LabNodes(plan).up() as place, Onlooker("127.0.0.1", 1) as onlooker:
        assert summed(place, 2, launcher).total == 0b11
    assert onlooker.listening <= {"10.77.0.1", "10.77.0.2"}


def test_the_secret_is_in_no_command_and_no_repr(hosts: Hosts) -> None:
    jobs = [SumJob(rank=rank, processes=4, directory="/x") for rank in range(4)]

    def secrets_of(told: list[Any]) -> set[str]:
        return {job.rendezvous.secret for job in told}

    told = ranks.invited(hosts, jobs, "torchrun")
    (secret,) = secrets_of(told)
    assert len(secret) == 64
    assert secrets_of(ranks.invited(hosts, jobs, "direct")) != {secret}
    assert secret not in repr(told)
    launchers: tuple[Launcher, ...] = ("direct", "torchrun")
    for launcher in launchers:
        for crew in crews(hosts, told, "a.worker", launcher):
            assert secret not in str(crew.command.describe())


class Evil:
    """What an outsider who had joined as a rank used to send."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._trace}",)


def test_what_a_rank_says_is_text_whatever_it_sends(tmp_path: Path) -> None:
    """Rank 1 sends what unpickles to a command; rank 0 only reads it."""
    trace = tmp_path / "ran"
    script = tmp_path / "two.py"
    script.write_text(
        "import sys\n"
        "from gpuyard.run.peers import Peers\n"
        "from sum_ranks import SumJob\n"
        "rank = int(sys.argv[1])\n"
        f"peers = Peers(SumJob(rank=rank, processes=2, directory={str(tmp_path)!r}, silence_seconds=60))\n"
        f"evil = bytes.fromhex({pickle.dumps(Evil(trace)).hex()!r}).decode('latin-1')\n"
        "print(peers.collect(evil if rank else 'mine') == ['mine', evil])\n"
    )
    path = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank)],
            env={**os.environ, **path}, stdout=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    assert [process.communicate(timeout=120)[0] for process in started] == ["True\n"] * 2
    assert not trace.exists()


def test_no_rank_unpickles_anything() -> None:
    source = Path(ranks.__file__).parents[1]
    unpickling = re.compile(r"_object\(|pickle\.|torch\.load\(|allow_pickle=True")
    found = [
        f"{path.relative_to(source)}: {match[0]}"
        for path in source.rglob("*.py")
        for match in unpickling.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_what_ranks_say_has_a_most_size(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = Peers(SumJob(rank=0, processes=1, directory="/x"))
    peers.count = 2

    def claim(lengths: list[torch.Tensor], _mine: torch.Tensor) -> None:
        lengths[1].fill_(MOST_TEXT_BYTES + 1)

    monkeypatch.setattr(dist, "all_gather", claim)
    with pytest.raises(GpuyardError, match="bytes to say"):
        peers.collect("x")
