"""Only the ranks of a run can meet: the store listens on one address, checks a secret, and unpickles nothing."""

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

from gpuyard.choices import Launcher
from gpuyard.errors import GpuyardError
from gpuyard.lab import plan_lab
from gpuyard.run import ranks, store
from gpuyard.run.channel import AuthError, Channel, accept_peer, join_peer
from gpuyard.run.launch import plan_launches
from gpuyard.run.peers import MAX_TEXT_BYTES, Peers
from gpuyard.run.places import Hosts, LabNodes, reach_hosts
from gpuyard.run.protocol import REJECTED_PEER, Rendezvous
from gpuyard.run.store import RunStore, StoreServer, list_addresses
from tests.conftest import MACHINE
from tests.run.sum_ranks import SumJob, sum_ranks
from tests.ssh_hosts import HOSTS, ssh_hosts

pytestmark = MACHINE
SECRET = "5ec2e7" * 10
Wire = tuple[Channel, Channel, socket.socket]


@pytest.fixture(autouse=True)
def _import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "run"))


def build_rendezvous(port: int, **more: Any) -> Rendezvous:
    document = {"address": "127.0.0.1", "port": port, "others": (), "secret": SECRET, **more}
    return Rendezvous.model_validate(document)


@pytest.fixture
def rendezvous() -> Iterator[Rendezvous]:
    """Run a store in this process and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        rendezvous = build_rendezvous(int(probe.getsockname()[1]))
    server = StoreServer(rendezvous)
    yield rendezvous
    server.close()


@pytest.fixture
def connect(rendezvous: Rendezvous) -> Iterator[Callable[..., RunStore]]:
    """Return a function that connects to the store as a rank does."""
    with contextlib.ExitStack() as stack:

        def connect(seconds: float = 5) -> RunStore:
            return stack.enter_context(contextlib.closing(RunStore(rendezvous, seconds)))

        yield connect


def test_the_store_works_like_torchs_own_store(connect: Callable[..., RunStore]) -> None:
    one, other = connect(), connect()
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


def test_the_store_listens_on_its_address_alone(rendezvous: Rendezvous) -> None:
    socket.create_connection(("127.0.0.1", rendezvous.port)).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", rendezvous.port))


@pytest.mark.parametrize(
    "knock",
    [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64, bytes(range(256)) * 40],
    ids=["silent", "browser", "zeros", "noise"],
)
def test_a_connection_without_the_secret_is_rejected_and_reported(
    rendezvous: Rendezvous,
    connect: Callable[..., RunStore],
    knock: bytes,
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = connect()
    stranger = socket.create_connection(
        ("127.0.0.1", rendezvous.port), source_address=("127.0.0.9", 0)
    )
    with stranger, contextlib.suppress(OSError):  # the store may close it at any time
        stranger.sendall(knock)
        stranger.shutdown(socket.SHUT_WR)
        while stranger.recv(4096):
            pass
    before.set("still", "there")
    assert connect().get("still") == b"there"
    deadline, output = time.monotonic() + 30, ""
    while REJECTED_PEER not in output:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        output += capfd.readouterr().err
    assert output == f"{REJECTED_PEER}127.0.0.9\n"


def test_torchs_own_client_and_ranks_of_other_runs_are_rejected(rendezvous: Rendezvous) -> None:
    with pytest.raises(dist.DistError):
        dist.TCPStore(  # type: ignore[attr-defined]
            "127.0.0.1", rendezvous.port, is_master=False, timeout=timedelta(seconds=2)
        )
    with pytest.raises(GpuyardError, match="unreachable"):
        RunStore(rendezvous.model_copy(update={"secret": "another"}), 0.1)


def test_idle_connections_do_not_block_ranks(
    rendezvous: Rendezvous, connect: Callable[..., RunStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.run.channel.HANDSHAKE_SECONDS", 1.0)
    with contextlib.ExitStack() as stack:
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", rendezvous.port)))
        connect(60).set("in", "yes")


def test_a_rank_reveals_nothing_to_an_impostor_of_the_store() -> None:
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as impostor:

        def pose() -> None:
            connection, _ = impostor.accept()
            with connection:
                connection.sendall(b"gpuyard run 1\n" + bytes(32))
                received.append(connection.recv(4096))
                connection.sendall(bytes(32))

        threading.Thread(target=pose, daemon=True).start()
        with pytest.raises(GpuyardError, match="does not know the run's secret"):
            RunStore(build_rendezvous(impostor.getsockname()[1]), 0)
    assert len(received[0]) == 64  # a nonce and a proof
    assert SECRET.encode() not in received[0]


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Connect a rank and the store; yield both channels and the rank's socket."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    with ours, theirs:
        accepted: list[Channel] = []
        acceptor = threading.Thread(target=lambda: accepted.append(accept_peer(theirs, SECRET)))
        acceptor.start()
        joined = join_peer(ours, SECRET)
        acceptor.join()
        yield joined, accepted[0], ours


class RecordingSocket:
    """Record bytes instead of sending them."""

    def __init__(self) -> None:
        self.sent = b""

    def sendall(self, data: bytes) -> None:
        self.sent += data


def test_messages_can_be_neither_repeated_nor_changed(wire: Wire) -> None:
    rank, store_channel, raw = wire
    recorder: Any = RecordingSocket()
    Channel(recorder, rank._sending_key, b"").send(b"hello")
    raw.sendall(recorder.sent)
    assert store_channel.receive() == b"hello"
    raw.sendall(recorder.sent)
    with pytest.raises(AuthError, match="modified"):
        store_channel.receive()


def test_a_message_has_a_maximum_size(wire: Wire) -> None:
    _, store_channel, raw = wire
    raw.sendall(b"\xff\xff\xff\xff")
    with pytest.raises(AuthError, match="maximum"):
        store_channel.receive()


@pytest.mark.parametrize(
    ("names", "others", "chosen"),
    [
        ({"a": "192.0.2.1"}, (), ["192.0.2.1"]),
        # Debian maps a host's own name to a loopback address
        ({"a": "127.0.1.1", "b": "192.0.2.2"}, ("b",), ["192.0.2.99", "127.0.1.1"]),
        # its public address belongs to the router
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
    monkeypatch.setattr(store, "_find_source", lambda _family, _address: "192.0.2.99")
    addresses = list_addresses(build_rendezvous(1, address="a", others=others))
    assert [address[0] for _, address in addresses] == chosen


def test_a_foreign_address_is_reported() -> None:
    with pytest.raises(GpuyardError, match=r"port 1 of 192\.0\.2\.1: Cannot assign"):
        StoreServer(build_rendezvous(1, address="192.0.2.1"))


@pytest.fixture
def hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    with ssh_hosts(tmp_path, temporary) as programs:
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        yield reach_hosts(HOSTS, ranks_per_node=2)


class Observer:
    """Watch all processes of a run, and connect to the port where its ranks meet."""

    def __init__(self, address: str, port: int) -> None:
        self.processes: dict[int, str] = {}
        self.listening: set[str] = set()
        self.connections = 0
        self._address = (address, port)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Observer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.wait(0.05):
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error):
                    argv = " ".join(process.cmdline())
                    if "sum_ranks" not in argv or "pytest" in argv:
                        continue
                    visible = argv + str(process.environ())
                    # other tests, in this checkout or another, also have such ranks
                    if os.getpid() not in {above.pid for above in process.parents()}:
                        continue
                    self.processes[process.pid] = visible
                    for connection in process.net_connections("inet"):
                        if connection.status == psutil.CONN_LISTEN:
                            self.listening.add(connection.laddr.ip)
            with contextlib.suppress(OSError):
                socket.create_connection(self._address, 1, ("127.0.0.9", 0)).close()
                self.connections += 1


@pytest.mark.parametrize("launcher", [pytest.param("direct", marks=pytest.mark.soak), "torchrun"])
def test_no_other_process_joins_a_run_over_hosts_or_sees_its_secret(
    hosts: Hosts,
    launcher: Launcher,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("gpuyard.run.ranks.secrets.token_hex", lambda _bytes: SECRET)
    with caplog.at_level(logging.WARNING, "gpuyard"), Observer(HOSTS[0], hosts.port) as observer:
        result = sum_ranks(hosts, 4, launcher)
    assert result.total == 0b1111
    assert observer.listening
    assert observer.listening <= {"127.0.0.1", "127.0.0.2"}
    assert len(observer.processes) >= 4
    assert not any(SECRET in visible for visible in observer.processes.values())
    assert observer.connections
    (record,) = caplog.records
    assert "127.0.0.9" in record.getMessage() and "secret" in record.getMessage()


@pytest.mark.usefixtures("can_make_labs")
@pytest.mark.parametrize("launcher", ["direct", pytest.param("torchrun", marks=pytest.mark.soak)])
def test_the_ranks_of_a_lab_listen_on_the_addresses_of_their_nodes(launcher: Launcher) -> None:
    plan = plan_lab(2, "1 Gbit/s", name="test-doors")
    with LabNodes(plan).up() as place, Observer("127.0.0.1", 1) as observer:
        assert sum_ranks(place, 2, launcher).total == 0b11
    assert observer.listening <= {"10.77.0.1", "10.77.0.2"}


def test_no_command_or_repr_contains_the_secret(hosts: Hosts) -> None:
    jobs = [SumJob(rank=rank, processes=4, directory="/x") for rank in range(4)]

    def collect_secrets(invited: list[Any]) -> set[str]:
        return {job.rendezvous.secret for job in invited}

    invited = ranks.invite_ranks(hosts, jobs, "torchrun")
    (secret,) = collect_secrets(invited)
    assert len(secret) == 64
    assert collect_secrets(ranks.invite_ranks(hosts, jobs, "direct")) != {secret}
    assert secret not in repr(invited)
    launchers: tuple[Launcher, ...] = ("direct", "torchrun")
    for launcher in launchers:
        for launch in plan_launches(hosts, invited, "a.worker", launcher):
            assert secret not in str(launch.command.describe())


class MaliciousPickle:
    """A pickle that runs a command when it is loaded."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self._trace}",)


def test_ranks_read_messages_as_text_only(tmp_path: Path) -> None:
    """Rank 1 sends a pickle that would run a command; rank 0 only reads it as text."""
    trace = tmp_path / "ran"
    script = tmp_path / "two.py"
    script.write_text(
        "import sys\n"
        "from gpuyard.run.peers import Peers\n"
        "from sum_ranks import SumJob\n"
        "rank = int(sys.argv[1])\n"
        f"peers = Peers(SumJob(rank=rank, processes=2, directory={str(tmp_path)!r}, silence_seconds=60))\n"
        f"evil = bytes.fromhex({pickle.dumps(MaliciousPickle(trace)).hex()!r}).decode('latin-1')\n"
        "print(peers.gather_text(evil if rank else 'mine') == ['mine', evil])\n"
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
    unpickling = re.compile(
        r"(?:gather|broadcast|scatter|send|recv)_object(?:_list)?\(|pickle\.|torch\.load\(|allow_pickle=True"
    )
    addresses = [
        f"{path.relative_to(source)}: {match[0]}"
        for path in source.rglob("*.py")
        for match in unpickling.finditer(path.read_text(encoding="utf-8"))
    ]
    assert addresses == []


def test_text_between_ranks_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    peers = Peers(SumJob(rank=0, processes=1, directory="/x"))
    peers.count = 2

    def claim(lengths: list[torch.Tensor], _mine: torch.Tensor) -> None:
        lengths[1].fill_(MAX_TEXT_BYTES + 1)

    monkeypatch.setattr(dist, "all_gather", claim)
    with pytest.raises(GpuyardError, match="bytes of text"):
        peers.gather_text("x")
