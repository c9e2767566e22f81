"""Job files, the jobs created from them, and handles."""

import dataclasses
import json
from datetime import datetime
from pathlib import Path

import pytest
from pydantic import ValidationError

from gpuyard.catalog.specfiles import read_job
from gpuyard.errors import SpecError, UserMistake
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.specs.job import JobSpec

EXAMPLES = Path(__file__).parents[2] / "examples"
NOON = datetime(2026, 11, 16, 12, 0).timestamp()  # a Monday
NASTY = 'it\'s "quoted"\n$(touch pwned) `id` \\ ü\t' + "x" * 10_000


def read_spec(tmp_path: Path, text: str) -> JobSpec:
    file = tmp_path / "train.job.yaml"
    file.write_text(text, encoding="utf-8")
    return read_job(file)


def test_the_example_file_is_read_completely() -> None:
    spec = read_job(EXAMPLES / "train.job.yaml")
    job = Job.create(spec, now=NOON, directory=EXAMPLES)
    assert spec.command == ("torchrun", "train.py", "--epochs", "20")
    assert (spec.gpus.min, spec.gpus.max, spec.retries.lost, spec.retries.failed) == (2, 8, 3, 0)
    assert datetime.fromtimestamp(job.deadline or 0) == datetime(2026, 11, 20, 18, 0)
    assert spec.checkpoint is not None
    assert (spec.checkpoint.directory, spec.checkpoint.time) == ("checkpoints", 30.0)
    assert job.spec.workload == str(EXAMPLES / "spoken-digits-linear.workload.yaml")


@pytest.mark.parametrize(
    ("gpus", "min_gpus", "max_gpus"),
    [("4", 4, 4), ("2..8", 2, 8), ('"2-8"', 2, 8), ("{min: 2}", 2, 2), ("{min: 1, max: 3}", 1, 3)],
)
def test_gpus_are_a_number_or_a_range(
    tmp_path: Path, gpus: str, min_gpus: int, max_gpus: int
) -> None:
    spec = read_spec(tmp_path, f"command: [train]\ngpus: {gpus}\n")
    assert (spec.gpus.min, spec.gpus.max) == (min_gpus, max_gpus)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("gpus: 8..2", "8..2"),
        ("gpus: many", "like 2..8, got 'many'"),
        ("gpus: 0", "1"),
        ("gpus: 3..8\nnodes: 2", "2 nodes"),
        ("command: cd data && python train.py", "shell"),
        ("command: []", "at least 1"),
        ("command: python 'train.py", "command"),
        ("checkpoint: {time: 30 s}", "directory or a command"),
        ("checkpoint: ''", "empty"),
        ("cwd: ''", "empty"),
        ("env: {A=B: c}", "'='"),
        ("workload: resnet5", "did you mean 'resnet50'"),
        ("priorty: 3", "did you mean 'priority'"),
        ("name: ''", "empty"),
    ],
)
def test_a_mistake_is_reported_with_its_line(tmp_path: Path, line: str, words: str) -> None:
    text = line if line.startswith("command") else f"command: [train]\n{line}"
    with pytest.raises(SpecError, match=r"train\.job\.yaml:[12]: ") as caught:
        read_spec(tmp_path, text)
    assert line.partition(":")[0] in str(caught.value).lower()
    assert words in str(caught.value)


def test_text_of_a_job_is_kept_exactly(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "name": NASTY,
            "command": ["train", NASTY, "", "  "],
            "env": {"TEXT": NASTY, " odd name ": " "},
            "cwd": str(tmp_path / NASTY[:50]),
        }
    )
    job = Job.create(read_spec(tmp_path, text), now=NOON, directory=tmp_path)
    assert job.name == NASTY
    assert job.spec.command == ("train", NASTY, "", "  ")
    assert job.spec.env == {"TEXT": NASTY, " odd name ": " "}
    assert job.cwd == tmp_path / NASTY[:50]
    assert Job.from_document(json.loads(json.dumps(job.document()))) == job


def test_arguments_that_no_process_can_get_are_rejected() -> None:
    with pytest.raises(ValidationError, match="null character"):
        JobSpec(command=("train", "a\0b"))
    with pytest.raises(ValidationError, match=r"100,000 bytes.*100,002"):
        JobSpec(command=("train", "ü" * 50_001))


def test_a_job_survives_its_json_form_and_a_resubmission() -> None:
    job = Job.create(read_job(EXAMPLES / "train.job.yaml"), now=NOON, directory=EXAMPLES)
    assert Job.from_document(json.loads(json.dumps(job.document()))) == job
    other = job.resubmit(NOON + 60)
    assert other.uuid != job.uuid
    assert dataclasses.replace(other, uuid=job.uuid, submitted=job.submitted) == job


def test_paths_are_relative_to_the_file_or_to_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    plain = JobSpec(command=("train",))
    assert Job.create(plain, now=NOON, directory=tmp_path).cwd == tmp_path / "here"
    moved = plain.model_copy(update={"cwd": "runs/a"})
    assert Job.create(moved, now=NOON, directory=tmp_path).cwd == tmp_path / "runs" / "a"
    assert Job.create(moved, now=NOON).cwd == tmp_path / "here" / "runs" / "a"


def test_a_job_without_a_name_is_named_after_its_program() -> None:
    unnamed = Job.create(JobSpec(command=("/usr/bin/python3", "x.py")), now=NOON)
    assert unnamed.name == "python3"


@pytest.mark.parametrize(
    "text", ["local://17", "slurm://cluster/17", "kubernetes://team-a/train-1"]
)
def test_a_handle_is_parsed_and_printed_unchanged(text: str) -> None:
    assert str(Handle.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["17", "local:17", "local://", "Local://1", "local://-x", "local://../1", "l://1\n", "x" * 999],
)
def test_an_invalid_handle_is_rejected(text: str) -> None:
    with pytest.raises(UserMistake, match="local://17"):
        Handle.parse(text)


def test_the_json_form_of_a_status() -> None:
    status = JobStatus(Handle("local", "1"), "queued", submitted=0.0)
    document = status.document()
    assert json.loads(json.dumps(document)) == document
    assert document["handle"] == "local://1"
    assert {"state", "restarts", "exit_status", "gpus"} <= document.keys()
    assert document["submitted"] == "1970-01-01T00:00:00+00:00"
