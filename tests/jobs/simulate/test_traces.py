"""Trace formats: gpuyard's own, the Philly table, and Slurm's accounting."""

from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.jobs import curve_prediction
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.policies.curve import Curve

ROOT = Path(__file__).parents[3]
OWN = "name,submit_s,gpus,min_gpus,max_gpus,duration_s,curve,deadline_s,user,weight,priority,elastic,restart_s\n"
SACCT = "JobID|JobName|User|Account|Submit|Start|End|AllocTRES\n"


def _file(path: Path, text: str) -> Path:
    file = path / "jobs.csv"
    file.write_text(text)
    return file


def test_gpuyard_csv(tmp_path: Path) -> None:
    text = OWN + 'b,10,4,1,8,100,1:1 4:3,500,ann,2,1,,30\n"a, b",5,2,,,60,,,,,,,\n'
    rigid, elastic = read_trace(_file(tmp_path, text)).jobs
    assert (rigid.id, rigid.submitted_s, rigid.elastic) == ("a, b", 5, False)
    assert (rigid.min_gpus, rigid.requested_gpus, rigid.max_gpus) == (2, 2, 2)
    assert rigid.work.seconds(0, (2,)) == 60
    assert (elastic.min_gpus, elastic.requested_gpus, elastic.max_gpus) == (1, 4, 8)
    assert elastic.work.total == 300, "100 s at the speed of 4 GPUs"
    assert elastic.work.seconds(0, (1,)) == 300
    assert elastic.work.seconds(0, (8,)) == 100, "it gets no faster beyond the last point"
    assert (elastic.elastic, elastic.restart_s, elastic.deadline_s) == (True, 30, 500)
    assert (elastic.user, elastic.weight, elastic.priority) == ("ann", 2, 1)


def test_only_three_columns_are_required(tmp_path: Path) -> None:
    trace = read_trace(_file(tmp_path, "submit_s,gpus,duration_s\n3,1,5\n1,1,5\n"))
    assert [job.id for job in trace.jobs] == ["job-2", "job-1"]


def test_a_curve_that_names_a_workload_is_predicted_on_the_cluster(tmp_path: Path) -> None:
    text = "submit_s,gpus,max_gpus,min_gpus,work,curve\n0,8,16,1,1e6,resnet50\n"
    cluster = read_cluster("2x8xv100-sxm2-16gb@10G")
    (job,) = read_trace(_file(tmp_path, text), cluster=cluster).jobs
    assert job.work.total == 1e6
    inside, split = job.work.seconds(0, (8,)), job.work.seconds(0, (4, 4))
    assert split > 1.5 * inside, "it waits for the network at 10 Gbit/s"
    faster = read_cluster("2x8xv100-sxm2-16gb@100G")
    (job,) = read_trace(_file(tmp_path, text), cluster=faster).jobs
    assert inside < job.work.seconds(0, (4, 4)) < 0.8 * split


def test_the_minimum_is_raised_to_the_gpus_whose_memory_the_model_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_four = Curve(np.array([0.0, 0, 0, 0, 4, 5, 6, 7, 8]))
    monkeypatch.setattr(curve_prediction, "predict_curve", lambda *_: needs_four)
    head = "submit_s,gpus,min_gpus,max_gpus,duration_s,curve\n"
    cluster = read_cluster("8xv100-sxm2-16gb")
    (job,) = read_trace(_file(tmp_path, f"{head}0,8,1,8,60,resnet50\n"), cluster=cluster).jobs
    assert (job.min_gpus, job.requested_gpus) == (4, 8)
    with pytest.raises(UserMistake, match=r"gpus: .* 2 .*memory"):
        read_trace(_file(tmp_path, f"{head}0,2,1,8,60,resnet50\n"), cluster=cluster)


def test_philly(tmp_path: Path) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n2017-10-09 07:00:55,100.0,8,800.0,6214e9\n"
    )
    first, second = read_trace(_file(tmp_path, text)).jobs
    assert (first.submitted_s, first.requested_gpus, first.user) == (0, 8, "6214e9")
    assert (second.submitted_s, second.work.seconds(0, (1,))) == (60, 66)
    assert not second.elastic


def test_sacct_omits_steps_jobs_without_gpus_and_unfinished_jobs(
    tmp_path: Path,
) -> None:
    text = SACCT + (
        '7|tr"ain|ann|nlp|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T01:10:00|cpu=8,gres/gpu=4\n'
        "7.batch|batch||nlp|2026-01-01T00:10:00|2026-01-01T00:10:00|2026-01-01T01:10:00|cpu=8,gres/gpu=4\n"
        "8|cpu|bob|nlp|2026-01-01T00:00:00|2026-01-01T00:10:00|2026-01-01T01:10:00|cpu=8\n"
        "9|runs|bob|nlp|2026-01-01T00:00:00|2026-01-01T00:10:00|Unknown|gres/gpu=1\n"
        "10_1|arr|bob|vis|2026-01-01T00:01:00|2026-01-01T00:01:00|2026-01-01T00:01:00|gres/gpu:a100=2\n"
    )
    first, second = read_trace(_file(tmp_path, text)).jobs
    assert (first.id, first.user, first.group, first.requested_gpus) == ("7", "ann", "nlp", 4)
    assert first.work.seconds(0, (4,)) == 3600
    assert (second.id, second.submitted_s, second.requested_gpus) == ("10_1", 60, 2)
    assert second.work.seconds(0, (2,)) == 1, "every job takes some time"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OWN + "a,0,2,1,4,60,,,,,,,\n", ":2: curve: a job with min_gpus below max_gpus"),
        (OWN + "a,0,2,4,8,60,1:1,,,,,,\n", ":2: gpus: expected min_gpus ≤ gpus ≤ max_gpus, got 4, 2, 8"),
        (OWN + "a,0,2,1,4,60,1-2,,,,,,\n", ":2: curve: expected GPUs:speed, like 2:58, got '1-2'"),
        (OWN + "a,0,2,1,4,60,0:3,,,,,,\n", ":2: curve: expected 1 to 10,000 GPUs"),
        (OWN + "a,0,2,1,4,60,resnet50,,,,,,\n", ":2: curve: to predict 'resnet50'"),
        (OWN + "a,0,2,1,4,60,vgg-1,,,,,,\n", ":2: curve: no "),
        ("submit_s,gpus,duration_s,work\n0,1,5,5\n", ":2: work: expected either work or duration_s"),
        ("submit_s,gpus\n0,1\n", ":2: duration_s: expected a number, got ''"),
        (OWN + "a,0,2,,,sixty,,,,,,,\n", ":2: duration_s: expected a number, got 'sixty'"),
        (OWN + "a,0,2,,,60,,,,,,maybe,\n", ":2: elastic: expected yes or no, got 'maybe'"),
        (OWN + "a,0,1,,,1,,,,,,,\n\na,0,1,,,1,,,,,,,\n", ":4: name: 'a' is already in line 2"),
        (SACCT + 2 * "1|||x|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:01:00|gres/gpu=1\n",
         ":3: jobid: '1' is already in line 2"),
        (OWN + 'a,"0\n', ":2: not valid CSV"),
        (OWN, "no job found"),
        ("timestamp,duration,num_gpus\n2017-13-09 07:01:55,66,1\n", ":2: timestamp: expected a time like"),
        (SACCT + "1|||x|2026-01-01T00:00:00|2026-01-02T00:00:00|2026-01-01T00:00:00|gres/gpu=1\n", ":2: end: "),
        (SACCT + "1|||x|x|x|y|gres/gpu=99999999999\n", ":2: AllocTRES: "),
        (SACCT + "1|||x|x|x|y|gres/gpu=999999\n", ":2: AllocTRES: expected 100,000 GPUs or fewer"),
        (SACCT, "gres/gpu in AllocTRES"),
        ("a,b\n1,2\n", "gpuyard: submit_s, gpus"),
        ("", ":1: expected the column names"),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(UserMistake) as caught:
        read_trace(_file(tmp_path, text), cluster=read_cluster("2xk80") if "vgg" in text else None)
    assert "jobs.csv" in str(caught.value)
    assert words in str(caught.value)


def test_the_team_example_is_a_trace() -> None:
    assert len(read_trace(ROOT / "examples/traces/team.csv").jobs) == 10
