"""The Now view: the same as `gpuyard who`, live, and shared by all viewers."""

import contextlib
import json
from http.client import HTTPResponse
from pathlib import Path

from tests.conftest import Cli
from tests.web.conftest import Serve
from tests.web.seed import write_readings

_CHANGING = ("elapsed_seconds", "age_seconds", "expected")


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_times(item) for key, item in value.items() if key not in _CHANGING}
    return [_without_times(item) for item in value] if isinstance(value, list) else value


def test_the_document_is_that_of_who(serve: Serve, share: Path, cli: Cli) -> None:
    (source,) = serve().get("/now.json").json()["sources"]
    who = json.loads(cli("who", "--json").stdout)
    idle = "has been idle for"
    for document in (source["share"], who):
        assert idle in document["violations"].pop()["sentence"]
    assert _without_times(source["share"]) == _without_times(who)
    assert source["error"] is None
    assert "GPU 1 has 2 uncorrected memory errors" in cli("who").stdout


def test_the_first_screen_answers_who_has_what(serve: Serve, share: Path) -> None:
    text = serve().get("/").text
    for part in ("alice", "bob", "carol", "vision", "python train.py", "leased but idle"):
        assert part in text
    assert "bob has been idle for 2.0 h" in text
    assert "GPU 1 has 2 uncorrected memory errors" in text
    assert 'href="/now.json"' in text
    assert "gpuyard who --watch" in text


def test_a_gpu_that_is_kept_for_a_request_is_not_free(serve: Serve, share: Path) -> None:
    text = serve().get("/").text
    assert text.count('class="state free"') == 0
    assert text.count('class="state kept"') == 1
    assert "1 kept for" in text


def test_a_request_that_waits_has_its_expected_start(serve: Serve, share: Path) -> None:
    (request,) = serve().get("/now.json").json()["sources"][0]["share"]["queue"]
    assert request["user"] == "carol"
    assert request["expected"] is None, "a lease before it has no time limit"


def test_without_a_share_it_says_what_to_run(serve: Serve) -> None:
    reply = serve().get("/")
    assert reply.status == 200
    assert "gpuyard share setup" in reply.text
    assert 'id="form-lease"' not in reply.text, "there is nothing to lease"


def _read_event(response: HTTPResponse) -> str:
    lines = []
    while line := response.readline().decode().rstrip("\n"):
        lines.append(line.removeprefix("data: "))
    return "\n".join(lines)


def test_viewers_get_every_reading_at_the_same_time(serve: Serve, share: Path) -> None:
    site = serve()
    with contextlib.ExitStack() as stack:
        streams = []
        for _ in range(3):
            connection = stack.enter_context(contextlib.closing(site.connect()))
            connection.request("GET", "/events/now")
            streams.append(connection.getresponse())
            assert streams[-1].getheader("content-type", "").startswith("text/event-stream")
        first = [_read_event(stream) for stream in streams]
        assert all(event.startswith("event: now") for event in first)
        write_readings(share, 8, busy=0, idle=8)
        # each has at most one older event on its way
        for stream in streams:
            events = [_read_event(stream) for _ in range(2)]
            assert '<td class="n">83%</td>' not in events[-1]


def test_a_gpu_that_is_used_without_a_lease_is_not_free(serve: Serve, empty_share: Path) -> None:
    write_readings(empty_share, 4, busy=1, idle=0)
    config = empty_share / "share.json"
    document = json.loads(config.read_text())
    for gpu in document["gpus"]:
        gpu["memory_bytes"] = 80 * 10**9
    config.write_text(json.dumps(document))
    site = serve()
    text = site.get("/").text
    assert "are in use by a process that the driver does not name" in text
    gpus = site.get("/now.json").json()["sources"][0]["share"]["gpus"]
    assert [bool(gpu["busy"]) for gpu in gpus] == [True, True, False, False]
    assert text.count('class="state free"') == 2
    assert text.count('class="state problem"') == 2
