"""Objects that are not valid for Kubernetes: each is named, and the others are still listed."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.objects import check_objects
from gpuyard.jobs.engines.kubernetes.status import ObjectReference, read_status
from gpuyard.jobs.job import JobStatus
from tests.jobs.engines.kubernetes.api_server import ApiServer, Handler
from tests.jobs.engines.kubernetes.conftest import new_job
from tests.jobs.engines.kubernetes.test_command_line import gpuyard

WRONG: list[Any] = [None, True, 3, 1.5, "x", [], {}, [3], {"x": 3}, [{"type": 3}], 2**80]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


def list_paths(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(document, dict):
        items = list(document.items())
    elif isinstance(document, list):
        items = list(enumerate(document))
    inner = [found for key, item in items for found in list_paths(item, (*path, key))]
    return [path, *inner]


def replaced(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy of a document with another value at a path."""
    if not path:
        return value
    copy = dict(document) if isinstance(document, dict) else list(document)
    copy[path[0]] = replaced(document[path[0]], path[1:], value)
    return copy


def mutate(document: Any) -> list[Any]:
    """Return copies of a document, each with one wrong value."""
    return [replaced(document, path, value) for path in list_paths(document) for value in WRONG]


def send(api: ApiServer, plural: str, *objects: Any) -> None:
    """Let the server add objects to every list of this kind, whatever they are, and return the first by its name."""

    def answer(handler: Handler) -> bool:
        path = handler.path.partition("?")[0]
        if handler.command != "GET" or f"/{plural}" not in path or path.endswith("/log"):
            return False
        if path.endswith(f"/{plural}"):
            items = [each for where, each in api.objects.items() if f"/{plural}/" in where]
            handler.document(200, {"kind": "List", "metadata": {}, "items": [*objects, *items]})
        else:
            handler.document(200, objects[0])
        return True

    api.faults[:] = [answer]


def list_jobs(engine: KubernetesEngine) -> list[JobStatus]:
    statuses = list(engine.list())
    for status in statuses:
        json.dumps(status.document())
    return statuses


@pytest.fixture
def example(api: ApiServer, engine: KubernetesEngine) -> dict[str, Any]:
    """Return a valid object with everything that gpuyard reads, next to a job that runs."""
    job = new_job("true", name="healthy")
    engine.submit(engine.plan(job))
    pod = api.add_pod("healthy-pod", job.uuid)
    condition = {
        "type": "Suspended",
        "status": "False",
        "lastTransitionTime": "2026-11-16T09:10:00Z",
    }
    metadata = {
        **api.one("jobs")["metadata"],
        "name": "bad-1",
        "labels": {"gpuyard/job-id": "b", "gpuyard/user": "u"},
    }
    status = {**pod["status"], "conditions": [condition], "ready": 0}
    return {**api.one("jobs"), "metadata": metadata, "status": status}  # fmt: skip


def test_queue_names_the_object_and_lists_the_others(
    api: ApiServer, example: dict[str, Any], tmp_path: Path
) -> None:
    send(api, "jobs", replaced(example, ("metadata", "labels"), ["x"]))
    listed = json.loads(gpuyard(tmp_path, "queue", "--json").stdout)["jobs"]
    healthy, bad = sorted(listed, key=lambda job: job["state"])
    assert healthy["state"] == "running" and healthy["name"] == "healthy"
    assert bad["state"] == "unknown" and bad["handle"].endswith("/job/bad-1")
    assert "bad-1" in bad["reason"] and "metadata.labels" in bad["reason"]


def test_any_wrong_value_in_a_job(
    api: ApiServer, engine: KubernetesEngine, example: dict[str, Any]
) -> None:
    objects = mutate(example)
    send(api, "jobs", *objects)
    statuses = list_jobs(engine)
    assert len(statuses) == len(objects) + 1 > 500
    (healthy,) = [
        status for status in statuses if status.handle.id.startswith("lab/team/job/healthy-")
    ]
    assert healthy.state == "running"
    named = [status for status in statuses if status.state == "unknown"]
    assert all(status.handle.id.rpartition("/")[2] in status.reason or "unnamed" in str(status.handle)
               for status in named)  # fmt: skip


def test_any_wrong_value_in_a_pod(
    api: ApiServer, engine: KubernetesEngine, example: dict[str, Any]
) -> None:
    pod = api.objects["v1/namespaces/team/pods/healthy-pod"]
    (handle,) = [status.handle for status in engine.list()]
    valid, malformed = check_objects("Pod", mutate({**pod, "spec": {"nodeName": "n"}}))
    assert len(valid) > 50 and len(malformed) > 50
    for each in valid:
        status = read_status(ObjectReference.from_handle(handle), api.one("jobs"), [each])
        json.dumps(status.document())
    send(api, "pods", replaced(pod, ("status", "containerStatuses"), 3))
    (status,) = list_jobs(engine)
    assert (status.handle, status.state) == (handle, "unknown") and "healthy-pod" in status.reason
    with pytest.raises(GpuyardError, match=r"healthy-pod.*status\.containerStatuses"):
        list(engine.logs(handle, False))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)
@given(data=st.data())
def test_random_objects(
    data: st.DataObject, api: ApiServer, engine: KubernetesEngine, example: dict[str, Any]
) -> None:
    paths = list_paths(example)
    item = replaced(example, data.draw(st.sampled_from(paths)), data.draw(JSON))
    send(api, "jobs", item)
    assert "healthy" in {status.name for status in list_jobs(engine)}
    handle = ObjectReference("lab", "team", KINDS["job"], "bad-1").handle
    json.dumps(engine.status(handle).document())
    for use in (lambda: list(engine.logs(handle, False)), lambda: engine.cancel(handle)):
        try:
            use()
        except GpuyardError as error:
            assert "bad-1" in str(error) or "is not a Kubernetes API server" in str(error)
