"""Text from other users in a scheduler cannot hide your own jobs."""

import json

import pytest

from gpuyard.jobs.engines.kubernetes.draft import GPUS_ANNOTATION, JOB_ANNOTATION
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.status import ObjectReference, read_job, read_status
from gpuyard.jobs.job import Job
from gpuyard.slurm import client
from gpuyard.slurm.jobs import list_jobs

JOB = {
    "uuid": "0a1b2c3d-0000-4000-8000-000000000000",
    "cwd": "/x",
    "submitted": 1e9,
    "deadline": None,
    "spec": {"name": "x", "command": ["train"]},
}


@pytest.mark.parametrize(
    "annotation",
    [
        "[" * 100_000,
        json.dumps({**JOB, "uuid": 1}),
        json.dumps({**JOB, "submitted": 10**400}),
        json.dumps({**JOB, "deadline": 1e300}),
        json.dumps({**JOB, "deadline": float("nan")}),
        json.dumps([JOB]),
    ],
)
def test_an_invalid_job_annotation_is_ignored(annotation: str) -> None:
    assert Job.from_document(JOB).name == "x"
    assert read_job({"metadata": {"annotations": {JOB_ANNOTATION: annotation}}}) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("gpus", ["9" * 5000, "²"])
def test_an_invalid_number_of_gpus_is_ignored(kind: str, gpus: str) -> None:
    metadata = {"name": "x", "annotations": {GPUS_ANNOTATION: gpus}}
    pod = {"metadata": {"name": "p"}, "spec": {}, "status": {"phase": "Running"}}
    reference = ObjectReference("c", "n", KINDS[kind], "x")
    status = read_status(reference, {"metadata": metadata, "spec": {}}, [pod])
    assert status.gpus is None
    json.dumps(status.document())


def test_an_extra_line_in_a_comment_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    output = (
        "17|17|N/A|RUNNING|0|0|1|1|1|1|None|a|my\n"
        "x|y|²|RUNNING|0|0|1|1|1|1|None|a|z\n"
        f"{'9' * 5000}|1|N/A|RUNNING|0|0|1|1|1|1|None|a|z\n"
        "18|18|N/A|PENDING|²:0|٣|1|1|1|1|None|a|z|\n"
    )
    monkeypatch.setattr(client, "run", lambda *_: output)
    assert [(row.number, row.exit_status, row.restarts) for row in list_jobs()] == [
        (17, 0, 0),
        (18, None, 0),
    ]


def test_a_long_slurm_setting_is_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backtracking regular expression took minutes."""
    output = "ClusterName = lab\nNEXT_JOB_ID = 12\nMinJobAge = 300 sec\nSelectType ="
    monkeypatch.setattr(client, "run", lambda *_: f"{output}a{' ' * 200_000}x")
    config = client.read_config()
    assert (config.cluster, config.next_job_id, config.supports_gpus_per_node) == ("lab", 12, True)
