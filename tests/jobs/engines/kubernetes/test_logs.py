"""Logs: of what ended, of what runs, and of what has not started; also over connections that break off."""

import threading
from collections.abc import Iterator

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.kubernetes import cluster as clusters
from gpuyard.jobs.engines.kubernetes import logs
from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.job import Handle
from tests.jobs.engines.kubernetes.api_server import ApiServer, Handler, Log
from tests.jobs.engines.kubernetes.conftest import new_job
from tests.jobs.engines.kubernetes.test_states import CASES

COMPLETE = CASES["complete"][1]


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(logs, "_END_SECONDS", 1)


@pytest.fixture
def handle(engine: KubernetesEngine) -> Handle:
    return engine.submit(engine.plan(new_job()))


def stamped(*lines: str, second: int = 1) -> list[tuple[str, str]]:
    """Two lines a moment, and fractions without zeros at their end, as Go prints them."""
    fractions = [f"{number // 2 + 1:03}".rstrip("0") for number in range(len(lines))]
    moments = (f"2026-11-16T09:00:{second:02}.{fraction}Z" for fraction in fractions)
    return list(zip(moments, lines, strict=True))


def say(api: ApiServer, pod: str, *lines: str, ends: bool = False) -> None:
    with api.changed:
        log = api.logs.setdefault(pod, Log(open=True))
        log.lines += stamped(*lines, second=len(log.lines) + 1)
        log.open = not ends
        api.changed.notify_all()


def complete(api: ApiServer, pod: str) -> None:
    """As it goes: the pod ends, and then its job."""
    uuid = api.one("jobs")["metadata"]["labels"]["gpuyard/job-id"]
    api.add_pod(pod, uuid, "Succeeded")
    api.set_status("jobs", **COMPLETE)


def test_logs_have_every_pod_in_order(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    api.add_pod("a", uuid, "Failed")
    api.add_pod("b", uuid, "Running")
    api.add_pod("c", uuid, "Pending")
    api.add_pod("of-another-job", "another")
    api.logs["a"] = Log(stamped("loss 3", "", "  it's ü $(x)"))
    api.logs["b"] = Log(stamped("loss 2"), open=True)
    api.logs["of-another-job"] = Log(stamped("not this"))
    assert "".join(engine.logs(handle, follow=False)) == "loss 3\n\n  it's ü $(x)\nloss 2\n"


def test_lines_of_several_nodes_say_whose_they_are(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handle = engine.submit(engine.plan(new_job(nodes=2, gpus=2)))
    for pod in ("n-0", "n-1"):
        api.add_pod(pod, engine.status(handle).uuid)
        api.logs[pod] = Log(stamped("hello"))
    assert list(engine.logs(handle, follow=False)) == ["[n-0] hello\n", "[n-1] hello\n"]


def test_follow_waits_for_the_pod_and_ends_with_the_job(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    lines = engine.logs(handle, follow=True)
    seen: list[str] = []

    def rest() -> None:
        seen.extend(lines)

    reader = threading.Thread(target=rest)
    reader.start()
    uuid = engine.status(handle).uuid
    api.add_pod("p", uuid, "Pending")
    say(api, "p", "one", "two")
    api.add_pod("p", uuid, "Running")
    say(api, "p", "three")
    say(api, "p", "four", ends=True)
    complete(api, "p")
    reader.join(timeout=60)
    assert seen == ["one\n", "two\n", "three\n", "four\n"]


def test_follow_goes_on_with_the_pod_that_takes_a_lost_ones_place(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    api.add_pod("p1", uuid, "Failed", exit_code=137)
    say(api, "p1", "first try", ends=True)
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "first try\n"
    say(api, "p2", "second try", ends=True)
    api.add_pod("p2", uuid, "Running")
    assert next(lines) == "second try\n"
    complete(api, "p2")
    assert list(lines) == []


def test_no_line_is_lost_or_shown_twice_when_connections_break_off(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    expected = [f"step {number}\n" for number in range(30)]
    api.add_pod("p", engine.status(handle).uuid)
    say(api, "p", *(line.strip() for line in expected), ends=True)
    api.logs["p"].breaks = [0, 3, 4, 4, 9, 13, 20, 23]
    api.set_status("jobs", **COMPLETE)
    assert list(engine.logs(handle, follow=True)) == expected


def test_a_log_that_breaks_off_again_and_again_is_a_fault(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    api.add_pod("p", engine.status(handle).uuid)
    say(api, "p", "one", "two", ends=True)
    api.logs["p"].breaks = [1] * 50
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "one\n"
    with pytest.raises(GpuyardError, match="broke off"):
        list(lines)


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (410, "Expired", "too old resource version: 101 (205)"),
        (403, "Forbidden", 'pods is forbidden: User "u" cannot watch resource "pods"'),
    ],
)
def test_a_watch_that_is_too_old_or_not_allowed_is_no_fault(
    engine: KubernetesEngine, api: ApiServer, handle: Handle, code: int, reason: str, said: str
) -> None:
    gone: list[str] = []

    def refused(handler: Handler) -> bool:
        if "watch=" not in handler.path or len(gone) == 3:
            return False
        gone.append(handler.path)
        handler.refuse(code, reason, said)
        return True

    api.faults.append(refused)
    lines = engine.logs(handle, follow=True)
    say(api, "p", "one", ends=True)
    api.add_pod("p", engine.status(handle).uuid)
    assert next(lines) == "one\n"
    complete(api, "p")
    assert list(lines) == []


def test_follow_of_a_job_that_is_cancelled_ends(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    say(api, "p", "one")
    api.add_pod("p", uuid)
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "one\n"
    engine.cancel(handle)
    say(api, "p", ends=True)
    api.add_pod("p", uuid, "Failed")  # its last change
    assert list(lines) == []


def test_follow_waits_for_a_job_that_prints_nothing_for_long(
    engine: KubernetesEngine, api: ApiServer, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_QUIET_SECONDS", 0.4)
    api.add_pod("p", engine.status(handle).uuid)
    say(api, "p", "one")
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "one\n"

    def asked() -> int:
        return len([path for _, path in api.requests if "/log" in path])

    with api.changed:
        assert api.changed.wait_for(
            lambda: asked() > 7, timeout=60
        )  # far more than breaks are borne
    say(api, "p", "two", ends=True)
    assert next(lines) == "two\n"
    complete(api, "p")
    assert list(lines) == []


def test_a_container_that_is_started_again_in_its_pod_is_read_again(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    api.add_pod("p", uuid)
    say(api, "p", "first", ends=True)
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "first\n"
    api.logs["before p"] = api.logs["p"]
    api.logs["p"] = Log(stamped("second", second=2))
    assert "".join(engine.logs(handle, follow=False)) == "second\n"
    api.add_pod("p", uuid, restarts=1)
    assert next(lines) == "second\n"
    assert "".join(engine.logs(handle, follow=False)) == "first\nsecond\n"
    complete(api, "p")


def test_follow_says_when_it_may_not(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    def forbidden(handler: Handler) -> bool:
        if "/log" not in handler.path:
            return False
        handler.refuse(403, "Forbidden", "pods/log is forbidden")
        return True

    api.faults.append(forbidden)
    api.add_pod("p", engine.status(handle).uuid)
    with pytest.raises(GpuyardError, match="pods/log is forbidden"):
        list(engine.logs(handle, follow=True))
    with pytest.raises(GpuyardError, match="pods/log is forbidden"):
        list(engine.logs(handle, follow=False))


def test_logs_of_no_job_are_a_mistake(engine: KubernetesEngine, api: ApiServer) -> None:
    with pytest.raises(UserMistake, match="there is no job"):
        engine.logs(Handle("kubernetes", "lab/team/job/never-was"), follow=False)


def test_a_line_without_end_is_handed_on_in_pieces(
    engine: KubernetesEngine, api: ApiServer, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LONGEST_LINE", 1000)
    api.add_pod("p", engine.status(handle).uuid)
    bar = "█" * 300_000
    api.logs["p"] = Log(stamped(bar, "end"))
    pieces: Iterator[str] = engine.logs(handle, follow=False)
    assert "".join(pieces) == f"{bar}\nend\n"
