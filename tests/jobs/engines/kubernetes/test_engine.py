"""The engine against an API server: submit, status, list, cancel, and failures."""

import base64
import json
import os
import re
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from gpuyard import files
from gpuyard.api.submit import Submission
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.jobs.engines.kubernetes import availability
from gpuyard.jobs.engines.kubernetes import cluster as clusters
from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.engines.kubernetes.records import read_record
from gpuyard.jobs.job import Handle
from gpuyard.report.answers.jobs.status import format_state
from tests.jobs.engines.kubernetes.api_server import TOKEN, ApiServer, Handler
from tests.jobs.engines.kubernetes.conftest import kubeconfig, new_job
from tests.jobs.engines.kubernetes.schema_check import problems

PLURALS = {
    "job": "jobs",
    "trainjob": "trainjobs",
    "pytorchjob": "pytorchjobs",
    "notebook": "statefulsets",
}


def submit(engine: KubernetesEngine, **spec: Any) -> Handle:
    return engine.submit(engine.plan(new_job(**spec)))


def reject(code: int, reason: str, message: str, method: str = "", part: str = "") -> Any:
    """Create a fault that rejects requests with this method whose path contains this part."""

    def fault(handler: Handler) -> bool:
        if (method and handler.command != method) or part not in handler.path:
            return False
        handler.refuse(code, reason, message)
        return True

    return fault


@pytest.mark.parametrize("kind", list(PLURALS))
def test_submit_creates_the_planned_object(
    engine: KubernetesEngine, api: ApiServer, kind: str
) -> None:
    request = engine.plan(new_job("jupyter", "lab", kubernetes={"kind": kind}))
    handle = engine.submit(request)
    assert str(handle) == f"kubernetes://lab/team/{kind}/{request.name}"
    assert Handle.parse(str(handle)) == handle
    created = api.one(PLURALS[kind])
    assert created["spec"] == request.manifests[0]["spec"]
    ((method, path),) = [request for request in api.requests if PLURALS[kind] in request[1]]
    assert method == "POST"
    assert "fieldValidation=Strict" in path


def test_companions_are_deleted_with_their_job(engine: KubernetesEngine, api: ApiServer) -> None:
    handle = submit(engine, nodes=2, gpus=2)
    service = api.one("services")
    assert service["metadata"]["ownerReferences"][0]["uid"] == api.one("jobs")["metadata"]["uid"]
    engine.cancel(handle)
    assert api.objects == {}


def test_a_notebook_token_is_only_in_its_secret(engine: KubernetesEngine, api: ApiServer) -> None:
    request = engine.plan(new_job("jupyter", "lab", kubernetes={"kind": "notebook"}))
    handle = engine.submit(request)
    secret = api.one("secrets")
    token = base64.b64decode(secret["data"]["token"]).decode()
    assert len(token) >= 32
    assert token not in json.dumps(
        [request.document(), api.one("statefulsets"), api.one("services")]
    )
    assert token not in str(engine.status(handle).document())
    assert problems({**secret, "metadata": request.manifests[0]["metadata"]}) == []
    engine.cancel(handle)
    assert api.objects == {}


def test_a_job_is_restored_from_its_record_or_its_object(
    engine: KubernetesEngine, api: ApiServer, tmp_path: Path
) -> None:
    job = new_job("a", "$(b)", name="it's", gpus=4, env={"A": "x\ny"})
    handle = engine.submit(engine.plan(job))
    assert engine.job(handle) == job
    for record in (tmp_path / "home" / "kubernetes").iterdir():
        assert stat.S_IMODE(record.stat().st_mode) & 0o077 == 0  # its variables may be private
        record.unlink()
    assert engine.job(handle) == job  # from another computer
    status = engine.status(handle)
    assert (status.name, status.uuid, status.command) == ("it's", job.uuid, ("a", "$(b)"))
    assert (status.state, status.gpus, status.max_gpus) == ("queued", None, 4)


def test_list_returns_this_users_jobs_of_every_kind(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handles = {submit(engine, kubernetes={"kind": kind}) for kind in PLURALS}
    other = json.loads(json.dumps(api.one("jobs")))
    other["metadata"] |= {"name": "other", "labels": {"gpuyard/job-id": "x", "gpuyard/user": "somebody-else"}}  # fmt: skip
    api.put("batch/v1/namespaces/team/jobs/other", other)
    api.put("batch/v1/namespaces/team/jobs/foreign", {**other, "metadata": {"name": "foreign"}})
    assert {status.handle for status in engine.list()} == handles


def test_list_skips_kinds_that_the_cluster_does_not_know(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.kinds -= {"trainer.kubeflow.org/v1alpha1/trainjobs", "kubeflow.org/v1/pytorchjobs"}
    handle = submit(engine)
    assert [status.handle for status in engine.list()] == [handle]


def test_a_kind_that_is_not_installed_is_explained(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.kinds -= {"trainer.kubeflow.org/v1alpha1/trainjobs"}
    with pytest.raises(GpuyardError, match=r"TrainJob.*Kubeflow Trainer"):
        submit(engine, kubernetes={"kind": "trainjob"})


def test_a_missing_namespace_is_not_a_missing_kind(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.faults.append(reject(404, "NotFound", 'namespaces "team" not found', "POST"))
    with pytest.raises(GpuyardError, match='namespaces "team" not found') as fault:
        submit(engine, kubernetes={"kind": "trainjob"})
    assert "Kubeflow Trainer" not in str(fault.value)


@pytest.mark.parametrize(
    ("code", "reason", "words"),
    [
        (401, "Unauthorized", "credentials (401)"),
        (403, "Forbidden", "(403)"),
        (422, "Invalid", "(422)"),
        (429, "TooManyRequests", "(429)"),
        (500, "InternalError", "status 500"),
    ],
)
def test_an_api_error_shows_its_message_without_secrets(
    engine: KubernetesEngine, api: ApiServer, code: int, reason: str, words: str
) -> None:
    handle = submit(engine)
    api.faults.append(reject(code, reason, f"no, says \x1b[31m the API to {TOKEN}"))
    with pytest.raises(GpuyardError) as fault:
        submit(engine)
    assert words in str(fault.value)
    assert "says � [31m the API" in str(fault.value).replace("�[", "� [")
    status = engine.status(handle)
    assert status.state == "unknown"
    for text in (str(fault.value), repr(fault.value), status.reason):
        assert TOKEN not in text
    assert fault.value.__cause__ is None
    with pytest.raises(GpuyardError, match=re.escape(words)):
        engine.list()
    with pytest.raises(GpuyardError, match=re.escape(words)):
        engine.cancel(handle)


def test_a_wrong_token_is_rejected_and_not_shown(
    engine: KubernetesEngine, api: ApiServer, config: Path
) -> None:
    config.write_text(kubeconfig(api.url, token="wrong-token-123456"))  # noqa: S106
    with pytest.raises(GpuyardError, match=r"credentials \(401\)") as fault:
        submit(engine)
    assert "wrong-token" not in str(fault.value)


def test_an_invalid_kubeconfig_is_not_quoted(engine: KubernetesEngine, config: Path) -> None:
    for text in (f"users: [{{token: {TOKEN}", f"- {TOKEN}\n", f"contexts: {TOKEN}", ""):
        config.write_text(text)
        with pytest.raises(UserMistake) as mistake:
            engine.plan(new_job())
        assert "kubeconfig" in str(mistake.value)
        assert TOKEN not in str(mistake.value)


def test_an_existing_object_with_the_same_name_is_not_changed(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    request = engine.plan(new_job())
    foreign = {"metadata": {"name": request.name, "labels": {"gpuyard/job-id": "another"}}}
    api.put(f"batch/v1/namespaces/team/jobs/{request.name}", foreign)
    with pytest.raises(GpuyardError, match=r"already exists \(409\)"):
        engine.submit(request)
    assert api.one("jobs")["metadata"]["labels"] == {"gpuyard/job-id": "another"}


def test_a_lost_answer_does_not_lead_to_a_second_object(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    lost: list[str] = []

    def create_without_answer(handler: Handler) -> bool:
        if handler.command != "POST" or lost:
            return False
        lost.append(handler.path)
        created = {**(handler.body or {}), "metadata": {**handler.body["metadata"], "uid": "u-1"}}  # type: ignore[index]
        api.put(f"batch/v1/namespaces/team/jobs/{created['metadata']['name']}", created)
        handler.close_connection = True
        handler.connection.close()
        return True

    api.faults.append(create_without_answer)
    handle = submit(engine)
    assert len([request for request in api.requests if request[0] == "POST"]) == 2
    assert api.one("jobs")["metadata"]["name"] == handle.id.rpartition("/")[2]


def test_nothing_remains_if_a_companion_is_rejected(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.faults.append(reject(403, "Forbidden", "no services for you", "POST", "/services"))
    request = engine.plan(new_job(nodes=2, gpus=2))
    with pytest.raises(GpuyardError, match="no services for you"):
        engine.submit(request)
    assert api.objects == {}


def test_a_partly_created_job_that_cannot_be_deleted_is_reported(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    def disconnect(handler: Handler) -> bool:
        if "/services" not in handler.path and handler.command != "DELETE":
            return False
        handler.close_connection = True
        handler.connection.close()
        return True

    api.faults.append(disconnect)
    request = engine.plan(new_job(nodes=2, gpus=2))
    with pytest.raises(
        GpuyardError, match=f"gpuyard cancel kubernetes://lab/team/job/{request.name}"
    ):
        engine.submit(request)
    changes = [method for method, _ in api.requests if method != "GET"]
    assert changes == ["POST", "POST", "POST", "DELETE"]
    api.faults.clear()
    engine.cancel(Handle("kubernetes", f"lab/team/job/{request.name}"))
    assert api.objects == {}


def test_list_needs_as_many_requests_for_many_jobs_as_for_one(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handles = [submit(engine) for _ in range(5)]
    api.add_pod("p", engine.status(handles[2]).uuid)
    before = len(api.requests)
    states = {status.handle: status.state for status in engine.list()}
    assert len(api.requests) - before == 5  # pods, and four kinds
    assert states == {handle: "running" if handle == handles[2] else "queued" for handle in handles}


def test_the_state_is_known_without_permission_to_see_pods(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handle = submit(engine)
    api.set_status("jobs", active=1, ready=1)
    api.faults.append(reject(403, "Forbidden", "pods is forbidden", "GET", "/pods"))
    assert engine.status(handle).state == "running"
    assert [status.state for status in engine.list()] == ["running"]


def test_a_job_is_unknown_if_the_cluster_does_not_answer(
    engine: KubernetesEngine, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = submit(engine, gpus=4)
    request = engine.plan(new_job())
    free = threading.Event()

    def hang(handler: Handler) -> bool:
        free.wait(20)
        handler.close_connection = True
        return True

    api.faults.append(hang)
    monkeypatch.setattr(clusters, "CALL_SECONDS", (0.5, 0.5))
    try:
        status = engine.status(handle)
        assert (status.state, status.final) == ("unknown", False)
        assert "did not answer within 0.5 s" in status.reason
        assert (status.name, status.max_gpus) == ("torchrun", 4)
        with pytest.raises(
            GpuyardError, match="may have been submitted as kubernetes://lab/team/job/"
        ):
            engine.submit(request)
        with pytest.raises(GpuyardError, match="did not answer"):
            engine.cancel(handle)
        request = engine.plan(new_job())
        assert any("did not answer" in caveat for caveat in request.caveats)
        with pytest.raises(
            GpuyardError, match="did not answer"
        ):  # never sent: its form depends on the version
            engine.submit(request)
    finally:
        free.set()


def test_a_job_is_unknown_if_the_server_is_down_or_not_kubernetes(
    engine: KubernetesEngine, api: ApiServer, config: Path
) -> None:
    handle = submit(engine)

    def serve_html(handler: Handler) -> bool:
        handler.plain(200, "<html>log in to this network</html>")
        return True

    api.faults.append(serve_html)
    assert "not a Kubernetes API server" in engine.status(handle).reason
    config.write_text(kubeconfig("http://127.0.0.1:9"))  # no process listens on this port
    assert_unreachable(handle, "http://127.0.0.1:9: connection refused", config)
    config.write_text(kubeconfig(api.url.replace("http:", "https:")))
    assert_unreachable(handle, "TLS", config)


def assert_unreachable(handle: Handle, words: str, config: Path) -> None:
    """Check the error, and that a request that was not sent is neither reported as submitted nor recorded."""
    records = set((config.parent / "home" / "kubernetes").iterdir())
    status = KubernetesEngine().status(handle)
    assert (status.state, words in status.reason) == ("unknown", True), status.reason
    with pytest.raises(GpuyardError, match=re.escape(words)) as fault:
        submit(KubernetesEngine())
    assert "may have been submitted" not in str(fault.value)
    assert set((config.parent / "home" / "kubernetes").iterdir()) == records


def test_a_deleted_job_is_canceled_or_lost(engine: KubernetesEngine, api: ApiServer) -> None:
    canceled, deleted = submit(engine), submit(engine)
    engine.cancel(canceled)
    api.objects.clear()
    assert engine.status(canceled).state == "cancelled"
    assert engine.status(deleted).state == "lost"
    assert "deleted" in engine.status(deleted).reason
    with pytest.raises(UserMistake, match="not found"):
        engine.status(Handle("kubernetes", "lab/team/job/never-was"))
    with pytest.raises(UserMistake, match="not found"):
        engine.cancel(deleted)
    assert engine.job(canceled).uuid == engine.status(canceled).uuid  # so that it can be retried


def test_records_of_jobs_that_ended_long_ago_are_pruned(
    engine: KubernetesEngine, api: ApiServer, config: Path
) -> None:
    """A record has the private variables of its job; a job that runs or whose cluster is silent keeps it."""
    runs, ends, deleted, recent = (submit(engine) for _ in range(4))
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-16T10:00:00Z"}
    for path, document in [*api.objects.items()]:
        if path.endswith(f"/{deleted.id.rpartition('/')[2]}"):
            del api.objects[path]
        elif path.endswith(f"/{ends.id.rpartition('/')[2]}"):
            document["status"] = {"conditions": [complete], "succeeded": 1}
    for record in (files.home() / "kubernetes").iterdir():
        if str(recent) not in record.read_text():
            os.utime(record, (0.0, 0.0))
    now = time.time()
    assert engine.prune(0.0) == 0
    assert engine.prune(now, dry_run=True) == 2
    assert engine.prune(now, limit=0) == 0
    unreachable = config.read_text()
    config.write_text(kubeconfig("http://127.0.0.1:1"))
    assert KubernetesEngine().prune(now) == 0
    config.write_text(unreachable)
    assert KubernetesEngine().prune(now) == 2
    kept = [read_record(handle) is not None for handle in (runs, ends, deleted, recent)]
    assert kept == [True, False, False, True]


def test_a_submission_prunes_old_records(engine: KubernetesEngine, api: ApiServer) -> None:
    old = submit(engine)
    api.objects.clear()
    for path in (files.home() / "kubernetes").iterdir():
        os.utime(path, (0.0, 0.0))
    job = new_job()
    submitted = Submission(job, engine, engine.plan(job)).submit()
    assert read_record(old) is None
    assert read_record(submitted.handle) is not None


def test_cancel_does_not_change_ended_jobs(engine: KubernetesEngine, api: ApiServer) -> None:
    handle = submit(engine)
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-16T10:00:00Z"}
    api.set_status("jobs", conditions=[complete], succeeded=1)
    engine.cancel(handle)
    assert engine.status(handle).state == "succeeded"
    assert not [method for method, _ in api.requests if method == "DELETE"]


def test_a_job_is_canceled_when_its_pods_are_gone(engine: KubernetesEngine, api: ApiServer) -> None:
    handle = submit(engine)
    bodies = []

    def delete_slowly(handler: Handler) -> bool:
        if handler.command == "DELETE":
            bodies.append(handler.body)
            manifest = api.one("jobs")
            manifest["metadata"]["deletionTimestamp"] = "2026-11-16T09:30:00Z"
            handler.document(200, manifest)
            return True
        return False

    api.faults.append(delete_slowly)
    engine.cancel(handle)
    assert bodies == [{"propagationPolicy": "Foreground"}]
    status = engine.status(handle)
    assert (status.state, status.canceling, status.final) == ("running", True, False)
    assert "running" not in str(format_state(status))
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    for time_text, state in (("09:30:04", "running"), ("09:29:04", "failed")):
        condition = {**failed, "lastTransitionTime": f"2026-11-16T{time_text}Z"}
        api.set_status("jobs", conditions=[condition])  # because its pod was killed, or before
        assert engine.status(handle).state == state
    api.objects.clear()
    assert engine.status(handle).state == "cancelled"


def test_an_invalid_handle_is_rejected(engine: KubernetesEngine) -> None:
    for text in ("17", "team/x", "lab/team/cronjob/x"):
        with pytest.raises(UserMistake, match="kubernetes://CONTEXT/NAMESPACE/KIND/NAME"):
            engine.status(Handle("kubernetes", text))


def test_context_names_of_clouds_work(
    engine: KubernetesEngine, api: ApiServer, config: Path
) -> None:
    name = "arn:aws:eks:eu-west-1:123456789012:cluster/research"
    config.write_text(kubeconfig(api.url, context=name))
    handle = submit(engine)
    assert str(handle).startswith(f"kubernetes://{name}/team/job/")
    assert engine.status(Handle.parse(str(handle))).state == "queued"
    config.write_text(kubeconfig(api.url, context="my cluster"))
    with pytest.raises(UserMistake, match="rename-context"):
        submit(engine)
    assert len(api.objects) == 1
    with pytest.raises(UserMistake, match=r"'other' .*my cluster"):
        submit(engine, kubernetes={"context": "other"})


def test_the_engine_reports_why_it_cannot_be_used(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = KubernetesEngine()
    assert engine.available().ok
    config.unlink()
    assert "kubeconfig not found" in engine.available().reason
    assert engine.plan(new_job()).namespace == "default"  # a dry run needs no cluster
    with pytest.raises(MissingRequirement, match="kubeconfig not found"):
        engine.submit(engine.plan(new_job()))
    monkeypatch.setattr(availability, "find_spec", lambda _: None)
    assert "pip install 'gpuyard[kubernetes]'" in engine.available().reason
