"""What a job is: the file, the value that it becomes, and the handle by which people name it."""

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


def written(tmp_path: Path, text: str) -> JobSpec:
    file = tmp_path / "train.job.yaml"
    file.write_text(text, encoding="utf-8")
    return read_job(file)


def test_the_example_says_all_that_a_job_can_name() -> None:
    spec = read_job(EXAMPLES / "train.job.yaml")
    job = Job.of(spec, now=NOON, directory=EXAMPLES)
    assert spec.command == ("torchrun", "train.py", "--epochs", "20")
    assert (spec.gpus.min, spec.gpus.max, spec.retries.lost, spec.retries.failed) == (2, 8, 3, 0)
    assert datetime.fromtimestamp(job.deadline or 0) == datetime(2026, 11, 20, 18, 0)
    assert spec.checkpoint is not None
    assert (spec.checkpoint.directory, spec.checkpoint.time) == ("checkpoints", 30.0)
    assert job.spec.workload == str(EXAMPLES / "spoken-digits-linear.workload.yaml")


@pytest.mark.parametrize(
    ("gpus", "least", "most"),
    [("4", 4, 4), ("2..8", 2, 8), ('"2-8"', 2, 8), ("{min: 2}", 2, 2), ("{min: 1, max: 3}", 1, 3)],
)
def test_gpus_are_a_number_or_a_range(tmp_path: Path, gpus: str, least: int, most: int) -> None:
    spec = written(tmp_path, f"command: [train]\ngpus: {gpus}\n")
    assert (spec.gpus.min, spec.gpus.max) == (least, most)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("gpus: 8..2", "can't be fewer than the least, got 8..2"),
        ("gpus: many", "expected a number of GPUs like 4, or a range like 2..8, got 'many'"),
        ("gpus: 0", "must be 1 or more"),
        ("gpus: 3..8\nnodes: 2", "3 GPUs can't be divided evenly among 2 nodes"),
        ("command: cd data && python train.py", "no shell runs the command"),
        ("command: []", "needs at least 1"),
        ("command: python 'train.py", "can't be split into words"),
        ("checkpoint: {time: 30 s}", "needs a directory or a command"),
        ("checkpoint: ''", "can't be empty"),
        ("cwd: ''", "can't be empty"),
        ("env: {A=B: c}", "can't be empty or have '='"),
        ("workload: resnet5", "did you mean 'resnet50'"),
        ("priorty: 3", "did you mean 'priority'"),
        ("name: ''", "can't be empty"),
    ],
)
def test_a_mistake_is_a_sentence_with_its_line(tmp_path: Path, line: str, sentence: str) -> None:
    text = line if line.startswith("command") else f"command: [train]\n{line}"
    with pytest.raises(SpecError, match=r"train\.job\.yaml:[12]: ") as caught:
        written(tmp_path, text)
    assert sentence in str(caught.value)


def test_text_of_a_job_is_kept_to_the_letter(tmp_path: Path) -> None:
    text = json.dumps(
        {
            "name": NASTY,
            "command": ["train", NASTY, "", "  "],
            "env": {"TEXT": NASTY, " odd name ": " "},
            "cwd": str(tmp_path / NASTY[:50]),
        }
    )
    job = Job.of(written(tmp_path, text), now=NOON, directory=tmp_path)
    again = Job.from_document(json.loads(json.dumps(job.document())))
    for one in (job, again):
        assert one.name == NASTY
        assert one.spec.command == ("train", NASTY, "", "  ")
        assert one.spec.env == {"TEXT": NASTY, " odd name ": " "}
        assert one.cwd == tmp_path / NASTY[:50]
    assert again == job


def test_what_no_process_can_be_given_is_refused() -> None:
    with pytest.raises(ValidationError, match="null character"):
        JobSpec(command=("train", "a\0b"))
    with pytest.raises(ValidationError, match="at most 100,000 bytes, got 100,002"):
        JobSpec(command=("train", "ü" * 50_001))


def test_a_job_keeps_every_field_on_its_way_through_a_store() -> None:
    job = Job.of(read_job(EXAMPLES / "train.job.yaml"), now=NOON, directory=EXAMPLES)
    assert Job.from_document(json.loads(json.dumps(job.document()))) == job
    other = job.again(NOON + 60)
    assert other.uuid != job.uuid
    assert dataclasses.replace(other, uuid=job.uuid, submitted=job.submitted) == job


def test_paths_are_meant_from_the_file_and_else_from_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    plain = JobSpec(command=("train",))
    assert Job.of(plain, now=NOON, directory=tmp_path).cwd == tmp_path / "here"
    moved = plain.model_copy(update={"cwd": "runs/a"})
    assert Job.of(moved, now=NOON, directory=tmp_path).cwd == tmp_path / "runs" / "a"
    assert Job.of(moved, now=NOON).cwd == tmp_path / "here" / "runs" / "a"


def test_a_job_is_named_by_its_program_where_it_has_no_name() -> None:
    assert JobSpec(command=("/usr/bin/python3", "x.py")).title == "python3"


@pytest.mark.parametrize(
    "text", ["local://17", "slurm://cluster/17", "kubernetes://team-a/train-1"]
)
def test_a_handle_is_read_as_it_is_written(text: str) -> None:
    assert str(Handle.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["17", "local:17", "local://", "Local://1", "local://-x", "local://../1", "l://1\n", "x" * 999],
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(UserMistake, match="expected a handle like local://17"):
        Handle.parse(text)


def test_a_status_for_programs_has_what_is_promised() -> None:
    status = JobStatus(Handle("local", "1"), "queued", submitted=0.0)
    document = status.document()
    assert json.loads(json.dumps(document)) == document
    assert document["handle"] == "local://1"
    assert {"state", "restarts", "exit_status", "gpus"} <= document.keys()
    assert document["submitted"] == "1970-01-01T00:00:00+00:00"
