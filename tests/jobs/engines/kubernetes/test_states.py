"""Job states, from statuses as controllers write them into objects and pods."""

from typing import Any

import pytest

from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.job import Handle, JobStatus
from tests.jobs.engines.kubernetes.api_server import ApiServer
from tests.jobs.engines.kubernetes.conftest import new_job
from tests.jobs.engines.kubernetes.schema_check import problems
from tests.jobs.engines.kubernetes.test_engine import PLURALS

EXIT_1 = (
    "Container job for pod team/digits-x failed with exit code 1 matching FailJob rule at index 1"
)


def condition(
    kind: str, status: str = "True", reason: str = "", message: str = ""
) -> dict[str, str]:
    return {
        "type": kind,
        "status": status,
        "reason": reason or kind,
        "message": message,
        "lastTransitionTime": "2026-11-16T09:10:00Z",
    }


def step(**counts: int) -> dict[str, Any]:
    zero = dict.fromkeys(("ready", "succeeded", "failed", "active", "suspended"), 0)
    return {"name": "node", **zero, **counts}


CASES: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]], str, str]] = {
    # case: kind, status, pods, state, words of the reason
    "just created": ("job", {}, [], "queued", ""),
    "no GPU is free": (
        "job",
        {"active": 1, "ready": 0, "startTime": "2026-11-16T09:00:00Z", "uncountedTerminatedPods": {}},
        [{"phase": "Pending", "state": {}, "conditions": [condition("PodScheduled", "False", "Unschedulable", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.")]}],
        "queued",
        "Unschedulable: 0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
    ),
    "image is missing": (
        "job",
        {"active": 1, "ready": 0},
        [{"phase": "Pending", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}],
        "queued",
        "ImagePullBackOff: Back-off pulling image",
    ),
    "runs": ("job", {"active": 1, "ready": 1, "terminating": 0}, [{"phase": "Running"}], "running", ""),
    "runs, pods are not visible": ("job", {"active": 1, "ready": 1}, [], "running", ""),
    "waits to be started again": ("job", {"failed": 1, "ready": 0}, [{"phase": "Failed", "exit_code": 137}], "queued", ""),
    "about to succeed": ("job", {"succeeded": 1, "conditions": [condition("SuccessCriteriaMet", reason="CompletionsReached")]}, [{"phase": "Succeeded"}], "running", ""),
    "complete": (
        "job",
        {"succeeded": 1, "completionTime": "2026-11-16T09:10:00Z", "conditions": [condition("SuccessCriteriaMet"), condition("Complete", reason="CompletionsReached")]},
        [{"phase": "Succeeded"}],
        "succeeded",
        "",
    ),
    "about to fail": ("job", {"failed": 1, "conditions": [condition("FailureTarget", reason="PodFailurePolicy", message=EXIT_1)]}, [{"phase": "Failed"}], "running", ""),
    "failed": ("job", {"failed": 1, "conditions": [condition("FailureTarget"), condition("Failed", reason="PodFailurePolicy", message=EXIT_1)]}, [{"phase": "Failed"}], "failed", EXIT_1),
    "over its time": ("job", {"failed": 1, "conditions": [condition("Failed", reason="DeadlineExceeded", message="Job was active longer than specified deadline")]}, [], "failed", "DeadlineExceeded: Job was active longer"),
    "its node does not respond": ("job", {"active": 1}, [{"conditions": [{**condition("Ready", "False"), "reason": ""}]}], "unknown", "gpu-node-1"),
    "one of its nodes does not respond": (
        "job",
        {"active": 2},
        [{"node": "a"}, {"node": "b", "conditions": [{**condition("Ready", "False"), "reason": ""}]}],
        "running",
        "node b",
    ),
    "its container is not ready yet": ("notebook", {}, [{"conditions": [condition("Ready", "False", "ContainersNotReady")]}], "running", ""),
    "a condition that is not true": ("job", {"active": 1, "ready": 1, "conditions": [condition("Suspended", "False", "JobResumed"), condition("Failed", "False")]}, [], "running", ""),
    "trainjob created": ("trainjob", {}, [], "queued", ""),
    "trainjob starts": ("trainjob", {"jobsStatus": [step(active=1)]}, [{"phase": "Pending"}], "queued", ""),
    # others have read a resumed TrainJob as not yet started (kubeflow/sdk#803)
    "trainjob resumed and running": ("trainjob", {"conditions": [condition("Suspended", "False", "Resumed", "TrainJob is resumed")], "jobsStatus": [step(active=1, ready=1)]}, [], "running", ""),
    "trainjob complete": ("trainjob", {"conditions": [condition("Suspended", "False", "Resumed"), condition("Complete", reason="AllJobsCompleted", message="jobset completed successfully")], "jobsStatus": [step(succeeded=1)]}, [], "succeeded", ""),
    "trainjob failed": ("trainjob", {"conditions": [condition("Failed", reason="FailedJobs", message="jobset failed due to one or more job failures")]}, [], "failed", "FailedJobs: jobset failed"),
    "trainjob without its runtime": ("trainjob", {"conditions": [condition("Failed", reason="TrainingRuntimeNotSupported", message="TrainingRuntime is not supported")]}, [], "failed", "TrainingRuntimeNotSupported"),
    "pytorchjob created": ("pytorchjob", {"conditions": [condition("Created", reason="PyTorchJobCreated")], "replicaStatuses": {"Master": {}}}, [], "queued", ""),
    "pytorchjob runs": ("pytorchjob", {"conditions": [condition("Created"), condition("Running", reason="PyTorchJobRunning")], "replicaStatuses": {"Master": {"active": 1}}}, [], "running", ""),
    "pytorchjob starts again": ("pytorchjob", {"conditions": [condition("Running", "False"), condition("Restarting", reason="PyTorchJobRestarting", message="PyTorchJob x is restarting because 1 Worker replica(s) failed.")], "replicaStatuses": {}}, [], "queued", "is restarting because 1 Worker"),
    "pytorchjob complete": ("pytorchjob", {"conditions": [condition("Running", "False"), condition("Succeeded", reason="PyTorchJobSucceeded")], "completionTime": "2026-11-16T09:10:00Z", "replicaStatuses": {"Master": {"succeeded": 1}}}, [], "succeeded", ""),
    "pytorchjob failed": ("pytorchjob", {"conditions": [condition("Failed", reason="PyTorchJobFailed", message="1 Master replica(s) failed.")], "replicaStatuses": {"Master": {"failed": 1}}}, [], "failed", "1 Master replica(s) failed"),
    "notebook starts": ("notebook", {"replicas": 1}, [{"phase": "Pending"}], "queued", ""),
    "notebook runs": ("notebook", {"replicas": 1, "readyReplicas": 1}, [{"phase": "Running"}], "running", ""),
    "notebook waits in Kueue": ("notebook", {"replicas": 1}, [{"phase": "Pending", "state": {}, "conditions": [condition("PodScheduled", "False", "SchedulingGated", "Scheduling is blocked due to non-empty scheduling gates")]}], "queued", "SchedulingGated"),
}  # fmt: skip


def submit_with_status(
    engine: KubernetesEngine, api: ApiServer, kind: str, status: dict[str, Any], **spec: Any
) -> Handle:
    options = {"kind": kind, **spec.pop("kubernetes", {})}
    handle = engine.submit(engine.plan(new_job("jupyter", **spec, kubernetes=options)))
    if status:
        manifest = {key: value for key, value in api.one(PLURALS[kind]).items() if key != "status"}
        assert problems({**manifest, "status": status}) == []
        api.set_status(PLURALS[kind], **status)
    return handle


def get_status(engine: KubernetesEngine, api: ApiServer, case: str) -> JobStatus:
    kind, status, pods, _, _ = CASES[case]
    handle = submit_with_status(engine, api, kind, status)
    for number, pod in enumerate(pods):
        api.add_pod(f"p{number}", engine.status(handle).uuid, **pod)
    return engine.status(handle)


@pytest.mark.parametrize("case", list(CASES))
def test_state_and_reason(engine: KubernetesEngine, api: ApiServer, case: str) -> None:
    status = get_status(engine, api, case)
    assert status.state == CASES[case][3]
    assert CASES[case][4] in status.reason
    assert bool(status.reason) == bool(CASES[case][4])
    if status.final:
        assert status.ended is not None


@pytest.mark.parametrize("kind", ["job", "trainjob", "pytorchjob"])
def test_a_job_that_kueue_suspends_is_queued(
    engine: KubernetesEngine, api: ApiServer, kind: str
) -> None:
    """This holds before a controller has written any status, and after Kueue has preempted the job."""
    handle = submit_with_status(engine, api, kind, {}, kubernetes={"queue": "team-a"})
    assert (engine.status(handle).state, engine.status(handle).reason) == (
        "queued",
        "waits in Kueue's queue team-a",
    )
    spec = api.one(PLURALS[kind])["spec"]
    policy = spec.get("runPolicy") or spec
    policy["suspend"] = False
    api.add_pod("p0", engine.status(handle).uuid)
    assert engine.status(handle).state == "running"
    policy["suspend"] = True
    assert engine.status(handle).state == "queued"


def test_a_failed_job_has_the_last_exit_status(engine: KubernetesEngine, api: ApiServer) -> None:
    handle = submit_with_status(engine, api, "job", CASES["failed"][1], gpus=4)
    uuid = engine.status(handle).uuid
    api.add_pod("first", uuid, "Failed", exit_code=137, finished="2026-11-16T09:05:00Z", node="a")
    api.add_pod("second", uuid, "Failed", exit_code=3, finished="2026-11-16T09:09:00Z", node="b")
    status = engine.status(handle)
    assert (status.exit_status, status.restarts, status.gpus) == (3, 1, 4)
    assert status.nodes == ("a", "b")
    assert status.document()["started"] == "2026-11-16T09:00:00+00:00"
    assert status.document()["ended"] == "2026-11-16T09:10:00+00:00"


def test_restarts_are_counted_by_node(engine: KubernetesEngine, api: ApiServer) -> None:
    handle = submit_with_status(engine, api, "job", {"active": 2, "ready": 2}, nodes=2, gpus=2)
    uuid = engine.status(handle).uuid
    for name, index, phase, restarts in (("a", "0", "Running", 0), ("b", "1", "Failed", 0), ("c", "1", "Running", 1)):  # fmt: skip
        labels = {"batch.kubernetes.io/job-completion-index": index}
        api.add_pod(name, uuid, phase, labels=labels, restarts=restarts)
    status = engine.status(handle)
    assert (status.state, status.restarts, status.exit_status) == ("running", 2, None)


def test_a_succeeded_job_has_exit_status_0(engine: KubernetesEngine, api: ApiServer) -> None:
    status = get_status(engine, api, "complete")
    assert (status.exit_status, status.gpus) == (0, 1)
