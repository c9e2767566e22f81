"""Logs of ended, running, and future pods, also over connections that break."""

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
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(logs, "_END_SECONDS", 1)


@pytest.fixture
def handle(engine: KubernetesEngine) -> Handle:
    return engine.submit(engine.plan(new_job()))


def add_times(*lines: str, second: int = 1) -> list[tuple[str, str]]:
    """Add times to lines, two lines per time, without trailing zeros in fractions, as Go prints them."""
    fractions = [f"{number // 2 + 1:03}".rstrip("0") for number in range(len(lines))]
    times = (f"2026-11-16T09:00:{second:02}.{fraction}Z" for fraction in fractions)
    return list(zip(times, lines, strict=True))


def write_log(api: ApiServer, pod: str, *lines: str, ends: bool = False) -> None:
    with api.changed:
        log = api.logs.setdefault(pod, Log(open=True))
        log.lines += add_times(*lines, second=len(log.lines) + 1)
        log.open = not ends
        api.changed.notify_all()


def complete(api: ApiServer, pod: str) -> None:
    """End the pod and then its job, in the real order."""
    uuid = api.one("jobs")["metadata"]["labels"]["gpuyard/job-id"]
    api.add_pod(pod, uuid, "Succeeded")
    api.set_status("jobs", **COMPLETE)


def test_logs_contain_every_pod_in_order(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    api.add_pod("a", uuid, "Failed")
    api.add_pod("b", uuid, "Running")
    api.add_pod("c", uuid, "Pending")
    api.add_pod("of-another-job", "another")
    api.logs["a"] = Log(add_times("loss 3", "", "  it's ü $(x)"))
    api.logs["b"] = Log(add_times("loss 2"), open=True)
    api.logs["of-another-job"] = Log(add_times("not this"))
    assert "".join(engine.logs(handle, follow=False)) == "loss 3\n\n  it's ü $(x)\nloss 2\n"


def test_lines_of_several_nodes_have_the_pod_as_prefix(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handle = engine.submit(engine.plan(new_job(nodes=2, gpus=2)))
    for pod in ("n-0", "n-1"):
        api.add_pod(pod, engine.status(handle).uuid)
        api.logs[pod] = Log(add_times("hello"))
    assert list(engine.logs(handle, follow=False)) == ["[n-0] hello\n", "[n-1] hello\n"]


def test_follow_waits_for_the_pod_and_stops_with_the_job(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    lines = engine.logs(handle, follow=True)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.extend(lines))
    reader.start()
    uuid = engine.status(handle).uuid
    api.add_pod("p", uuid, "Pending")
    write_log(api, "p", "one", "two")
    api.add_pod("p", uuid, "Running")
    write_log(api, "p", "three")
    write_log(api, "p", "four", ends=True)
    complete(api, "p")
    reader.join(timeout=60)
    assert received == ["one\n", "two\n", "three\n", "four\n"]


def test_follow_continues_with_a_replacement_pod(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    api.add_pod("p1", uuid, "Failed", exit_code=137)
    write_log(api, "p1", "first try", ends=True)
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "first try\n"
    write_log(api, "p2", "second try", ends=True)
    api.add_pod("p2", uuid, "Running")
    assert next(lines) == "second try\n"
    complete(api, "p2")
    assert list(lines) == []


def test_no_line_is_lost_or_repeated_when_connections_break(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    expected = [f"step {number}\n" for number in range(30)]
    api.add_pod("p", engine.status(handle).uuid)
    write_log(api, "p", *(line.strip() for line in expected), ends=True)
    api.logs["p"].breaks = [0, 3, 4, 4, 9, 13, 20, 23]
    api.set_status("jobs", **COMPLETE)
    assert list(engine.logs(handle, follow=True)) == expected


def test_a_log_that_keeps_breaking_is_an_error(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    api.add_pod("p", engine.status(handle).uuid)
    write_log(api, "p", "one", "two", ends=True)
    api.logs["p"].breaks = [1] * 50
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "one\n"
    with pytest.raises(GpuyardError, match="closed the connection"):
        list(lines)


@pytest.mark.parametrize(
    ("code", "reason", "message"),
    [
        (410, "Expired", "too old resource version: 101 (205)"),
        (403, "Forbidden", 'pods is forbidden: User "u" cannot watch resource "pods"'),
    ],
)
def test_an_expired_or_forbidden_watch_is_not_an_error(
    engine: KubernetesEngine, api: ApiServer, handle: Handle, code: int, reason: str, message: str
) -> None:
    rejected: list[str] = []

    def reject_watch(handler: Handler) -> bool:
        if "watch=" not in handler.path or len(rejected) == 3:
            return False
        rejected.append(handler.path)
        handler.refuse(code, reason, message)
        return True

    api.faults.append(reject_watch)
    lines = engine.logs(handle, follow=True)
    write_log(api, "p", "one", ends=True)
    api.add_pod("p", engine.status(handle).uuid)
    assert next(lines) == "one\n"
    complete(api, "p")
    assert list(lines) == []


def test_follow_stops_if_the_job_is_canceled(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    write_log(api, "p", "one")
    api.add_pod("p", uuid)
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "one\n"
    engine.cancel(handle)
    write_log(api, "p", ends=True)
    api.add_pod("p", uuid, "Failed")  # its last change
    assert list(lines) == []


def test_follow_waits_for_a_job_without_output(
    engine: KubernetesEngine, api: ApiServer, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_LOG_IDLE_SECONDS", 0.4)
    api.add_pod("p", engine.status(handle).uuid)
    write_log(api, "p", "one")
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "one\n"

    def count_requests() -> int:
        return len([path for _, path in api.requests if "/log" in path])

    with api.changed:
        assert api.changed.wait_for(
            lambda: count_requests() > 7, timeout=60
        )  # more than the allowed number of breaks
    write_log(api, "p", "two", ends=True)
    assert next(lines) == "two\n"
    complete(api, "p")
    assert list(lines) == []


def test_the_log_of_a_restarted_container_is_read(
    engine: KubernetesEngine, api: ApiServer, handle: Handle
) -> None:
    uuid = engine.status(handle).uuid
    api.add_pod("p", uuid)
    write_log(api, "p", "first", ends=True)
    lines = engine.logs(handle, follow=True)
    assert next(lines) == "first\n"
    api.logs["before p"] = api.logs["p"]
    api.logs["p"] = Log(add_times("second", second=2))
    assert "".join(engine.logs(handle, follow=False)) == "second\n"
    api.add_pod("p", uuid, restarts=1)
    assert next(lines) == "second\n"
    assert "".join(engine.logs(handle, follow=False)) == "first\nsecond\n"
    complete(api, "p")


def test_missing_permission_is_an_error(
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


def test_logs_of_an_unknown_job_are_a_mistake(engine: KubernetesEngine, api: ApiServer) -> None:
    with pytest.raises(UserMistake, match="not found"):
        engine.logs(Handle("kubernetes", "lab/team/job/never-was"), follow=False)


def test_a_very_long_line_is_complete(
    engine: KubernetesEngine, api: ApiServer, handle: Handle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_MAX_LINE", 1000)
    api.add_pod("p", engine.status(handle).uuid)
    bar = "█" * 300_000
    api.logs["p"] = Log(add_times(bar, "end"))
    chunks: Iterator[str] = engine.logs(handle, follow=False)
    assert "".join(chunks) == f"{bar}\nend\n"
