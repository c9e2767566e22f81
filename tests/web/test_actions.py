"""Actions from the page: confirmed, as the user who asks, and with the command line that does the same."""

import getpass
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Cli
from tests.web.conftest import Serve, Site


def _wait_for(read: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while not (value := read()):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    return value


def _leases(site: Site) -> dict[str, str]:
    gpus = site.get("/now.json").json()["sources"][0]["share"]["gpus"]
    return {lease["id"]: lease["command"] for gpu in gpus for lease in gpu["leases"]}


def test_lease_and_release(serve: Serve, empty_share: Path) -> None:
    site = serve()
    page = site.get("/act/lease?count=2&time=1h&project=x").text
    assert "gpuyard lease 2 --for 1h --project x -- sleep infinity" in page
    assert _leases(site) == {}, "nothing happens before it is confirmed"
    assert "done" in site.act("lease", count="2", time="1h").text
    ((lease, command),) = _wait_for(lambda: _leases(site)).items()
    assert command == "sleep infinity"
    page = site.get(f"/act/release?lease={lease}").text
    for fact in ("sleep infinity", "0–1", getpass.getuser()):
        assert fact in page
    assert f"Released lease {lease}" in site.act("release", lease=lease).text
    assert not _leases(site)


def test_reserve_and_cancel(serve: Serve, empty_share: Path, cli: Cli) -> None:
    site = serve()
    assert site.act("reserve", ids="1,2", **{"from": "23:59", "time": "1h"}).status == 200
    (reservation,) = json.loads(cli("reserve", "list", "--json").stdout)["reservations"]
    assert reservation["gpus"] == [1, 2]
    assert "23:59" in site.get(f"/act/cancel-reservation?reservation={reservation['id']}").text
    assert site.act("cancel-reservation", reservation=reservation["id"]).status == 200
    assert json.loads(cli("reserve", "list", "--json").stdout)["reservations"] == []


def test_submit_cancel_and_retry(serve: Serve, empty_share: Path, cli: Cli) -> None:
    site = serve()
    reply = site.act("submit", command="sleep 600", count="1", name="held")
    assert "local://1" in reply.text
    page = site.get("/act/cancel?job=local%3A%2F%2F1").text
    assert "sleep 600" in page
    assert "held" in page
    assert site.act("cancel", job="local://1").status == 200
    _wait_for(
        lambda: json.loads(cli("status", "local://1", "--json").stdout)["state"] == "cancelled"
    )
    assert "local://2" in site.act("retry", job="local://1").text
    assert site.act("cancel", job="local://2").status == 200


def test_a_failed_action_shows_the_commands_own_error(serve: Serve, share: Path) -> None:
    reply = serve().act("release", lease="ffffffff")
    assert reply.status == 409
    assert "not done" in reply.text
    assert "ffffffff" in reply.text


@pytest.mark.parametrize(
    ("name", "query", "named"),
    [
        ("lease", "count=--help&time=1h", "number of GPUs"),
        ("lease", "count=1", "needs a time"),
        ("release", "lease=--json", "ID of a lease"),
        ("release", "lease=a%0Ab", "ID of a lease"),
        ("submit", "count=1", "command is missing"),
        ("submit", "count=1&command=%22", "split into words"),
        ("cancel", "job=--all", "expected a handle"),
        ("explode", "", "action"),
    ],
)
def test_wrong_fields_are_explained(
    serve: Serve, empty_share: Path, name: str, query: str, named: str
) -> None:
    reply = serve().get(f"/act/{name}?{query}")
    assert reply.status == 400
    assert named in reply.text


def test_an_option_can_never_be_smuggled_in(serve: Serve, empty_share: Path) -> None:
    page = serve().get("/act/submit?command=true&name=--dry-run&count=1").text
    assert "--name=--dry-run" in page
