"""The engine against a server that speaks the API: submit, status, list, cancel, and everything that can go wrong."""

import base64
import json
import re
import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.jobs.engines.kubernetes import cluster as clusters
from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.job import Handle
from tests.jobs.engines.kubernetes.api_server import TOKEN, ApiServer, Handler
from tests.jobs.engines.kubernetes.conftest import kubeconfig, new_job
from tests.jobs.engines.kubernetes.schema_check import problems

PLURALS = {
    "job": "jobs",
    "trainjob": "trainjobs",
    "pytorchjob": "pytorchjobs",
    "notebook": "statefulsets",
}


def submitted(engine: KubernetesEngine, **spec: Any) -> Handle:
    return engine.submit(engine.plan(new_job(**spec)))


def refusing(code: int, reason: str, message: str, method: str = "", part: str = "") -> Any:
    """A fault that refuses requests of this method whose path has this part."""

    def fault(handler: Handler) -> bool:
        if (method and handler.command != method) or part not in handler.path:
            return False
        handler.refuse(code, reason, message)
        return True

    return fault


@pytest.mark.parametrize("kind", list(PLURALS))
def test_submit_makes_the_object_that_was_planned(
    engine: KubernetesEngine, api: ApiServer, kind: str
) -> None:
    request = engine.plan(new_job("jupyter", "lab", kubernetes={"kind": kind}))
    handle = engine.submit(request)
    assert str(handle) == f"kubernetes://lab/team/{kind}/{request.name}"
    assert Handle.parse(str(handle)) == handle
    made = api.one(PLURALS[kind])
    assert made["spec"] == request.manifests[0]["spec"]
    ((method, path),) = [each for each in api.requests if PLURALS[kind] in each[1]]
    assert method == "POST"
    assert "fieldValidation=Strict" in path


def test_what_belongs_to_a_job_goes_with_it(engine: KubernetesEngine, api: ApiServer) -> None:
    handle = submitted(engine, nodes=2, gpus=2)
    service = api.one("services")
    assert service["metadata"]["ownerReferences"][0]["uid"] == api.one("jobs")["metadata"]["uid"]
    engine.cancel(handle)
    assert api.objects == {}


def test_a_notebook_gets_a_token_that_nobody_reads_elsewhere(
    engine: KubernetesEngine, api: ApiServer
) -> None:
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


def test_a_job_is_the_same_when_it_is_asked_for_again(
    engine: KubernetesEngine, api: ApiServer, tmp_path: Path
) -> None:
    job = new_job("a", "$(b)", name="it's", gpus=4, env={"A": "x\ny"})
    handle = engine.submit(engine.plan(job))
    assert engine.job(handle) == job
    for record in (tmp_path / "home" / "kubernetes").iterdir():
        assert (
            stat.S_IMODE(record.stat().st_mode) & 0o077 == 0
        )  # its variables are nobody else's business
        record.unlink()
    assert engine.job(handle) == job  # from another computer
    status = engine.status(handle)
    assert (status.name, status.uuid, status.command) == ("it's", job.uuid, ("a", "$(b)"))
    assert (status.state, status.gpus, status.max_gpus) == ("queued", None, 4)


def test_list_has_this_users_jobs_of_every_kind(engine: KubernetesEngine, api: ApiServer) -> None:
    handles = {submitted(engine, kubernetes={"kind": kind}) for kind in PLURALS}
    other = json.loads(json.dumps(api.one("jobs")))
    other["metadata"] |= {"name": "other", "labels": {"gpuyard/job-id": "x", "gpuyard/user": "somebody-else"}}  # fmt: skip
    api.put("batch/v1/namespaces/team/jobs/other", other)
    api.put("batch/v1/namespaces/team/jobs/foreign", {**other, "metadata": {"name": "foreign"}})
    assert {status.handle for status in engine.list()} == handles


def test_list_does_without_kinds_that_the_cluster_does_not_know(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.kinds -= {"trainer.kubeflow.org/v1alpha1/trainjobs", "kubeflow.org/v1/pytorchjobs"}
    handle = submitted(engine)
    assert [status.handle for status in engine.list()] == [handle]


def test_a_kind_that_is_not_installed_is_said_in_words(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.kinds -= {"trainer.kubeflow.org/v1alpha1/trainjobs"}
    with pytest.raises(GpuyardError, match="knows no TrainJob: it needs Kubeflow Trainer"):
        submitted(engine, kubernetes={"kind": "trainjob"})


def test_a_namespace_that_is_not_there_is_no_missing_kind(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.faults.append(refusing(404, "NotFound", 'namespaces "team" not found', "POST"))
    with pytest.raises(GpuyardError, match='namespaces "team" not found') as fault:
        submitted(engine, kubernetes={"kind": "trainjob"})
    assert "knows no TrainJob" not in str(fault.value)


@pytest.mark.parametrize(
    ("code", "reason", "said"),
    [
        (401, "Unauthorized", "does not take your credentials"),
        (403, "Forbidden", "may not do that"),
        (422, "Invalid", "finds the manifest invalid"),
        (429, "TooManyRequests", "too much to do"),
        (500, "InternalError", "answered with status 500"),
    ],
)
def test_a_refusal_is_a_sentence_with_the_apis_message_and_no_secret(
    engine: KubernetesEngine, api: ApiServer, code: int, reason: str, said: str
) -> None:
    handle = submitted(engine)
    api.faults.append(refusing(code, reason, f"no, says \x1b[31m the API to {TOKEN}"))
    with pytest.raises(GpuyardError) as fault:
        submitted(engine)
    assert said in str(fault.value)
    assert "says � [31m the API" in str(fault.value).replace("�[", "� [")
    status = engine.status(handle)
    assert status.state == "unknown"
    for text in (str(fault.value), repr(fault.value), status.reason):
        assert TOKEN not in text
    assert fault.value.__cause__ is None
    with pytest.raises(GpuyardError, match=re.escape(said)):
        engine.list()
    with pytest.raises(GpuyardError, match=re.escape(said)):
        engine.cancel(handle)


def test_a_wrong_token_is_refused_and_not_shown(
    engine: KubernetesEngine, api: ApiServer, config: Path
) -> None:
    config.write_text(kubeconfig(api.url, token="wrong-token-123456"))  # noqa: S106
    with pytest.raises(GpuyardError, match=r"credentials \(401\)") as fault:
        submitted(engine)
    assert "wrong-token" not in str(fault.value)


def test_a_kubeconfig_that_can_not_be_read_is_not_quoted(
    engine: KubernetesEngine, config: Path
) -> None:
    for text in (f"users: [{{token: {TOKEN}", f"- {TOKEN}\n", f"contexts: {TOKEN}", ""):
        config.write_text(text)
        with pytest.raises(UserMistake) as mistake:
            engine.plan(new_job())
        assert "kubeconfig" in str(mistake.value)
        assert TOKEN not in str(mistake.value)


def test_an_object_of_the_same_name_is_left_alone(engine: KubernetesEngine, api: ApiServer) -> None:
    request = engine.plan(new_job())
    foreign = {"metadata": {"name": request.name, "labels": {"gpuyard/job-id": "another"}}}
    api.put(f"batch/v1/namespaces/team/jobs/{request.name}", foreign)
    with pytest.raises(GpuyardError, match=r"another object of that name \(409\)"):
        engine.submit(request)
    assert api.one("jobs")["metadata"]["labels"] == {"gpuyard/job-id": "another"}


def test_a_job_whose_answer_was_lost_is_not_made_twice(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    lost: list[str] = []

    def heard_but_not_answered(handler: Handler) -> bool:
        if handler.command != "POST" or lost:
            return False
        lost.append(handler.path)
        made = {**(handler.body or {}), "metadata": {**handler.body["metadata"], "uid": "u-1"}}  # type: ignore[index]
        api.put(f"batch/v1/namespaces/team/jobs/{made['metadata']['name']}", made)
        handler.close_connection = True
        handler.connection.close()
        return True

    api.faults.append(heard_but_not_answered)
    handle = submitted(engine)
    assert len([each for each in api.requests if each[0] == "POST"]) == 2
    assert api.one("jobs")["metadata"]["name"] == handle.id.rpartition("/")[2]


def test_nothing_stays_where_a_part_of_a_job_is_refused(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    api.faults.append(refusing(403, "Forbidden", "no services for you", "POST", "/services"))
    request = engine.plan(new_job(nodes=2, gpus=2))
    with pytest.raises(GpuyardError, match="no services for you"):
        engine.submit(request)
    assert api.objects == {}


def test_a_part_that_can_not_be_made_nor_undone_is_said(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    def away(handler: Handler) -> bool:
        if "/services" not in handler.path and handler.command != "DELETE":
            return False
        handler.close_connection = True
        handler.connection.close()
        return True

    api.faults.append(away)
    request = engine.plan(new_job(nodes=2, gpus=2))
    with pytest.raises(
        GpuyardError, match=f"gpuyard cancel kubernetes://lab/team/job/{request.name}"
    ):
        engine.submit(request)
    assert [each[0] for each in api.requests] == ["POST", "POST", "POST", "DELETE"]
    api.faults.clear()
    engine.cancel(Handle("kubernetes", f"lab/team/job/{request.name}"))
    assert api.objects == {}


def test_list_asks_as_much_for_many_jobs_as_for_one(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handles = [submitted(engine) for _ in range(5)]
    api.add_pod("p", engine.status(handles[2]).uuid)
    before = len(api.requests)
    states = {status.handle: status.state for status in engine.list()}
    assert len(api.requests) - before == 5  # pods, and four kinds
    assert states == {handle: "running" if handle == handles[2] else "queued" for handle in handles}


def test_pods_that_one_may_not_see_leave_the_state_known(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handle = submitted(engine)
    api.set_status("jobs", active=1, ready=1)
    api.faults.append(refusing(403, "Forbidden", "pods is forbidden", "GET", "/pods"))
    assert engine.status(handle).state == "running"
    assert [status.state for status in engine.list()] == ["running"]


def test_a_cluster_that_does_not_answer_makes_a_job_unknown(
    engine: KubernetesEngine, api: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = submitted(engine, gpus=4)
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
        assert "does not answer in 0.5 s" in status.reason
        assert (status.name, status.max_gpus) == ("torchrun", 4)
        with pytest.raises(
            GpuyardError, match="it may have been submitted as kubernetes://lab/team/job/"
        ):
            submitted(engine)
        with pytest.raises(GpuyardError, match="does not answer in"):
            engine.cancel(handle)
    finally:
        free.set()


def test_a_server_that_is_down_or_is_none_makes_a_job_unknown(
    engine: KubernetesEngine, api: ApiServer, config: Path
) -> None:
    handle = submitted(engine)

    def other(handler: Handler) -> bool:
        handler.plain(200, "<html>log in to this network</html>")
        return True

    api.faults.append(other)
    assert "does not answer like Kubernetes" in engine.status(handle).reason
    config.write_text(kubeconfig("http://127.0.0.1:9"))  # nobody listens there
    assert_unreachable(handle, "http://127.0.0.1:9: nobody listens there", config)
    config.write_text(kubeconfig(api.url.replace("http:", "https:")))
    assert_unreachable(handle, "speaks no TLS", config)


def assert_unreachable(handle: Handle, said: str, config: Path) -> None:
    """And what can't have been heard is not said to be submitted, nor kept."""
    records = set((config.parent / "home" / "kubernetes").iterdir())
    status = KubernetesEngine().status(handle)
    assert (status.state, said in status.reason) == ("unknown", True), status.reason
    with pytest.raises(GpuyardError, match=re.escape(said)) as fault:
        submitted(KubernetesEngine())
    assert "may have been submitted" not in str(fault.value)
    assert set((config.parent / "home" / "kubernetes").iterdir()) == records


def test_a_job_that_is_gone_was_cancelled_from_here_or_is_lost(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    cancelled, deleted = submitted(engine), submitted(engine)
    engine.cancel(cancelled)
    api.objects.clear()
    assert engine.status(cancelled).state == "cancelled"
    assert engine.status(deleted).state == "lost"
    assert "somebody deleted it" in engine.status(deleted).reason
    with pytest.raises(UserMistake, match="there is no job"):
        engine.status(Handle("kubernetes", "lab/team/job/never-was"))
    with pytest.raises(UserMistake, match="there is no job"):
        engine.cancel(deleted)
    assert engine.job(cancelled).uuid == engine.status(cancelled).uuid  # so that it can be retried


def test_cancel_leaves_what_has_ended_as_it_is(engine: KubernetesEngine, api: ApiServer) -> None:
    handle = submitted(engine)
    complete = {"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-16T10:00:00Z"}
    api.set_status("jobs", conditions=[complete], succeeded=1)
    engine.cancel(handle)
    assert engine.status(handle).state == "succeeded"
    assert not [each for each in api.requests if each[0] == "DELETE"]


def test_cancel_waits_for_pods_to_be_gone_before_it_says_so(
    engine: KubernetesEngine, api: ApiServer
) -> None:
    handle = submitted(engine)
    bodies = []

    def being_deleted(handler: Handler) -> bool:
        if handler.command == "DELETE":
            bodies.append(handler.body)
            found = api.one("jobs")
            found["metadata"]["deletionTimestamp"] = "2026-11-16T09:30:00Z"
            handler.document(200, found)
            return True
        return False

    api.faults.append(being_deleted)
    engine.cancel(handle)
    assert bodies == [{"propagationPolicy": "Foreground"}]
    status = engine.status(handle)
    assert (status.state, status.reason) == ("running", "it is being deleted")
    api.objects.clear()
    assert engine.status(handle).state == "cancelled"


def test_a_handle_of_another_shape_is_a_mistake(engine: KubernetesEngine) -> None:
    for text in ("17", "team/x", "lab/team/cronjob/x"):
        with pytest.raises(UserMistake, match="expected kubernetes://CONTEXT/NAMESPACE/KIND/NAME"):
            engine.status(Handle("kubernetes", text))


def test_contexts_are_named_as_clouds_name_them(
    engine: KubernetesEngine, api: ApiServer, config: Path
) -> None:
    name = "arn:aws:eks:eu-west-1:123456789012:cluster/research"
    config.write_text(kubeconfig(api.url, context=name))
    handle = submitted(engine)
    assert str(handle).startswith(f"kubernetes://{name}/team/job/")
    assert engine.status(Handle.parse(str(handle))).state == "queued"
    config.write_text(kubeconfig(api.url, context="my cluster"))
    with pytest.raises(UserMistake, match="rename-context"):
        submitted(engine)
    assert len(api.objects) == 1
    with pytest.raises(UserMistake, match="no context 'other'; it has: my cluster"):
        submitted(engine, kubernetes={"context": "other"})


def test_the_engine_says_why_it_can_not_be_used(
    config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = KubernetesEngine()
    assert engine.available().ok
    config.unlink()
    assert "there is no kubeconfig" in engine.available().reason
    assert engine.plan(new_job()).namespace == "default"  # a dry run needs no cluster
    with pytest.raises(MissingRequirement, match="there is no kubeconfig"):
        engine.submit(engine.plan(new_job()))
    monkeypatch.setattr(clusters, "find_spec", lambda _: None)
    assert "pip install 'gpuyard[kubernetes]'" in engine.available().reason
