"""Whatever a user sends to the lease service, it keeps answering the others, and its log has no internal error."""

import contextlib
import json
import os
import pwd
import socket
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.errors import GpuyardError
from gpuyard.report.answers.share.leases import calendar_answer, who_answer
from gpuyard.share import wire
from gpuyard.share.client import OPERATIONS
from gpuyard.share.clock import Clock
from gpuyard.share.config import read_config
from gpuyard.share.models import LeaseRequest, ReservationRequest, ShareState
from gpuyard.share.views import reservation_document, who_document
from tests.conftest import USERS
from tests.share.conftest import needs_root
from tests.share.test_users import Server, accounts, server

__all__ = ["accounts", "server"]
pytestmark = [needs_root, USERS]

NOW = time.time()
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        (0, 1, -1, 2**31, 2**63 - 1, 2**63, 10**400, 1e-9, 1e15, 3.2e10, 1e308, NOW, NOW + 60)
    ),
    st.sampled_from(("", "\0", "\x1b[2J", "x" * 60_000, "0000abcd")),
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner)
)


def _requests(kind: type[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Build requests whose fields have the right names and often plausible values."""
    plausible = {
        "count": st.integers(1, 8),
        "start": st.floats(NOW - 60, NOW + 1e9),
        "end": st.floats(NOW, NOW + 1e9),
        "gpus": st.lists(st.integers(-1, 9), max_size=3),
        "seconds": st.floats(1, 1e9),
        "parts": st.integers(1, 1_000_000),
        "waits": st.booleans(),
    }
    names = [field.name for field in fields(kind)]
    return st.fixed_dictionaries(
        {}, optional={name: plausible.get(name, VALUES) | VALUES for name in names}
    )


ARGUMENTS = {
    "request": _requests(LeaseRequest) | _requests(ReservationRequest) | VALUES,
    "gpus": st.lists(st.integers(), max_size=3) | VALUES,
}
OPERATION_LINES = st.sampled_from(sorted(OPERATIONS)).flatmap(
    lambda name: st.fixed_dictionaries(
        {"do": st.just(name)},
        optional={
            **{key: ARGUMENTS.get(key, VALUES) for key in OPERATIONS[name].arguments},
            "uid": st.just(0),
        },
    )
)
LINES = st.one_of(
    st.binary(max_size=200).map(lambda junk: junk + b"\n"),
    VALUES.map(lambda value: json.dumps(value).encode() + b"\n"),
    OPERATION_LINES.map(lambda document: json.dumps(document).encode() + b"\n"),
)


@contextlib.contextmanager
def acting_for(user: str) -> Iterator[None]:
    """Connect as another user: the kernel reports the effective IDs of the process that connects."""
    account = pwd.getpwnam(user)
    os.setegid(account.pw_gid)
    os.seteuid(account.pw_uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


def send(server: Server, user: str, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        with acting_for(user), wire.socket_path(server.directory) as path:
            connection.connect(path)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(line)
            connection.shutdown(socket.SHUT_WR)
        chunks = []
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65_536):
                chunks.append(chunk)
    return b"".join(chunks)


def call(server: Server, user: str, operation: str, **arguments: object) -> Any:
    with acting_for(user):
        answer, locks = wire.call(server.directory, operation, **arguments)
    for lock in locks:
        os.close(lock)
    return answer


def show_everything(server: Server, user: str) -> ShareState:
    """Render what `who` and `reserve list` show."""
    state = ShareState.from_document(call(server, user, "state"))
    document = who_document(read_config(server.directory), state, Clock(), {})
    assert who_answer(document).parts
    assert calendar_answer([reservation_document(r) for r in state.reservations]).parts
    return state


def check_others_can_work(server: Server, user: str) -> None:
    """The other user sees, asks, and reserves; whether GPUs are free is another question."""
    show_everything(server, user)
    place = call(server, user, "ask", request=LeaseRequest(seconds=60))["lease"]
    with contextlib.suppress(GpuyardError):  # its lock is closed, so it may have ended
        call(server, user, "leave", lease_id=place["id"])
    start = time.time() + 300 * 86_400
    with contextlib.suppress(GpuyardError):
        reserved = call(server, user, "reserve", request=ReservationRequest(1, start, start + 60))
        call(server, user, "cancel", reservation_id=reserved["id"])


def internal_errors(server: Server) -> list[str]:
    lines = (server.directory / "service.log").read_text().splitlines()
    return [line for line in lines if not line.endswith("is ready.")]


@pytest.mark.hypothesis  # like tests that `given` decorates, so `make soak` runs it with more examples
def test_nothing_that_a_user_sends_disturbs_the_others(server: Server) -> None:
    a, b, admin = server.users

    @settings(
        max_examples=settings().max_examples // 4,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(LINES, min_size=1, max_size=5))
    def fuzz(lines: list[bytes]) -> None:
        for line in lines:
            answer = send(server, a, line)
            assert b"the lease service failed" not in answer, line
        check_others_can_work(server, b)
        assert internal_errors(server) == [], lines

    fuzz()
    for reservation in show_everything(server, admin).reservations:
        call(server, admin, "cancel", reservation_id=reservation.id)
    server.run(b, "who")
    server.run(b, "reserve", "list")
    server.run(b, "lease", "8", "--wait", "20s", "--", "true")


@pytest.mark.parametrize(
    "start",
    [1e15, 3.2e10, NOW + 400 * 86_400, -1.0, 0.0],
    ids=["1e15", "year-2984", "in-400-days", "before-1970", "1970"],
)
def test_a_reservation_at_an_absurd_time_is_refused(server: Server, start: float) -> None:
    a, b, _ = server.users
    request = {"count": 1, "start": start, "end": start + 3600}
    with pytest.raises(GpuyardError):
        call(server, a, "reserve", request=request)
    assert show_everything(server, b).reservations == ()


def test_bad_rows_in_the_store_are_shown_and_an_admin_can_cancel_them(server: Server) -> None:
    """However they got there, nobody else's command fails because of them."""
    a, b, admin = server.users
    insert = (
        "INSERT INTO reservations (id, kind, uid, user, count, requested_gpus, gpus, start, 'end')"
        " VALUES (?, 'reservation', 1, 'x', ?, ?, ?, ?, ?)"
    )
    rows: list[tuple[str, int, str, str, float, float]] = [
        ("00000001", 1, "[]", "[0]", 1e15, 1e15 + 60),
        ("00000002", 1, "[]", "[1]", 0.0, 1e300),
        ("00000003", 10**12, "[]", "[2]", -1e300, float("inf")),
        ("00000004", 1, "not a list", '{"gpus": 1}', NOW + 90, NOW + 3600),
        ("00000005", 1, "[]", '[1e300, "x"]', float("-inf"), float("inf")),
    ]
    with contextlib.closing(sqlite3.connect(server.directory / "leases.sqlite")) as connection:
        connection.executemany(insert, rows)
        connection.commit()
    for user in (a, "root"):
        listed = server.run(user, "reserve", "list")[0]
        assert all(row[0] in listed for row in rows)
        assert rows[0][0] in server.run(user, "who")[0]
    server.run(b, "lease", "5", "--now", "--", "true")
    server.run(b, "reserve", "1", "--start", "tomorrow 8:00", "--for", "1h")
    server.run(admin, "reserve", "cancel", rows[0][0])
    for row in rows[1:]:
        call(server, admin, "cancel", reservation_id=row[0])
    server.run(b, "lease", "8", "--now", "--for", "1min", "--", "true")
    assert internal_errors(server) == []
