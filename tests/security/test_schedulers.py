"""What other users wrote, as schedulers tell of it: a stranger's object or comment hides none of one's own jobs."""

import json
from typing import Any

import pytest

from gpuyard.jobs.engines.kubernetes.draft import GPUS_ANNOTATION, JOB_ANNOTATION
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.status import ObjectReference, job_of, status_said
from gpuyard.jobs.engines.slurm import commands, rows
from gpuyard.jobs.job import Job

JOB = {
    "uuid": "0a1b2c3d-0000-4000-8000-000000000000",
    "cwd": "/x",
    "submitted": 1e9,
    "deadline": None,
    "spec": {"name": "x", "command": ["train"]},
}


@pytest.mark.parametrize(
    "written",
    [
        "[" * 100_000,
        json.dumps({**JOB, "uuid": 1}),
        json.dumps({**JOB, "submitted": 10**400}),
        json.dumps({**JOB, "deadline": 1e300}),
        json.dumps({**JOB, "deadline": float("nan")}),
        json.dumps([JOB]),
    ],
)
def test_an_annotation_that_is_no_job_is_none(written: str) -> None:
    assert Job.from_document(JOB).name == "x"
    assert job_of({"metadata": {"annotations": {JOB_ANNOTATION: written}}}) is None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("found", "pods"),
    [
        ({"metadata": {"annotations": {GPUS_ANNOTATION: "9" * 5000}}, "spec": {}}, [{"metadata": {}, "status": {"phase": "Running"}}]),
        ({"metadata": {"annotations": {GPUS_ANNOTATION: "²"}}, "spec": {}}, [{"metadata": {}, "status": {"phase": "Running"}}]),
        ({"metadata": [], "spec": 1}, []),
        ({"metadata": {}, "spec": {}, "status": []}, []),
        ({"metadata": {}, "spec": {}}, [{"metadata": {}, "status": {"containerStatuses": [{"restartCount": "x"}]}}]),
        ({"metadata": {}, "spec": {}}, [{"metadata": {}, "status": {"containerStatuses": [{"state": {"terminated": {"exitCode": float("inf")}}}]}}]),
    ],
)  # fmt: skip
def test_an_object_that_is_none_of_kubernetes_is_one_whose_state_nobody_knows(
    kind: str, found: dict[str, Any], pods: list[dict[str, Any]]
) -> None:
    told = status_said(ObjectReference("c", "n", KINDS[kind], "x"), found, pods)
    assert told.gpus is None
    json.dumps(told.document())


def test_a_line_more_in_a_comment_is_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (
        "17|17|N/A|RUNNING|0|0|1|1|1|1|None|a|my\n"
        "x|y|²|RUNNING|0|0|1|1|1|1|None|a|z\n"
        f"{'9' * 5000}|1|N/A|RUNNING|0|0|1|1|1|1|None|a|z\n"
        "18|18|N/A|PENDING|²:0|٣|1|1|1|1|None|a|z|\n"
    )
    monkeypatch.setattr(rows, "ask", lambda *_: said)
    assert [(row.number, row.exit_status, row.restarts) for row in rows.queue_rows()] == [
        (17, 0, 0),
        (18, None, 0),
    ]


def test_a_long_setting_of_slurm_is_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that looked for its end from each of its characters took minutes."""
    said = "ClusterName = lab\nNEXT_JOB_ID = 12\nMinJobAge = 300 sec\nSelectType ="
    monkeypatch.setattr(commands, "ask", lambda *_: f"{said}a{' ' * 200_000}x")
    found = commands.slurm_config()
    assert (found.cluster, found.next_number, found.gpus_per_node) == ("lab", 12, True)
