"""The job files of the docs page, with the commands that people type."""

import json
import os
import re
from pathlib import Path

import pytest

from tests.command_line import Done, run_here
from tests.docs.test_docs import DOCS, fences
from tests.jobs.engines.kubernetes.api_server import TOKEN, ApiServer
from tests.jobs.engines.kubernetes.conftest import kubeconfig
from tests.jobs.engines.kubernetes.test_logs import complete, write_log

PAGE = DOCS / "jobs-kubernetes.md"


@pytest.fixture
def here(tmp_path: Path, config: Path) -> Path:
    for fence in fences(PAGE):
        if fence.file is not None:
            (tmp_path / fence.file).write_text(fence.text, encoding="utf-8")
    return tmp_path


def gpuyard(here: Path, *words: str) -> Done:
    without_slurm = {**os.environ, "PATH": str(here)}  # otherwise `queue` would contact it and wait
    done = run_here(*words, cwd=here, environment=without_slurm)
    assert TOKEN not in done.stdout + done.stderr
    return done


def test_the_page_from_submit_to_cancel(here: Path, api: ApiServer) -> None:
    done = gpuyard(here, "submit", "digits.job.yaml", "--engine", "kubernetes")
    assert re.fullmatch(r"kubernetes://lab/team/job/spoken-digits-[0-9a-f]{8}\n", done.stdout)
    handle = done.stdout.strip()
    status = gpuyard(here, "status", handle)
    assert "waits in Kueue's queue team-a" in status.stdout
    document = json.loads(gpuyard(here, "status", handle, "--json").stdout)
    assert (document["state"], document["max_gpus"], document["gpus"]) == ("queued", 8, None)

    uuid = document["uuid"]
    for pod in ("n-0", "n-1"):
        api.add_pod(pod, uuid)
        write_log(api, pod, f"hello from {pod}", ends=True)
    api.one("jobs")["spec"]["suspend"] = False
    logs = gpuyard(here, "logs", handle)
    assert logs.stdout == "[n-0] hello from n-0\n[n-1] hello from n-1\n"
    listed = json.loads(gpuyard(here, "queue", "--json").stdout)["jobs"]
    assert [(job["handle"], job["state"]) for job in listed] == [(handle, "running")]

    assert gpuyard(here, "cancel", handle).returncode == 0
    assert api.objects.keys() == {f"v1/namespaces/team/pods/n-{number}" for number in range(2)}
    assert json.loads(gpuyard(here, "status", handle, "--json").stdout)["state"] == "cancelled"
    again = gpuyard(here, "retry", handle).stdout.strip()
    assert again.startswith("kubernetes://lab/team/job/spoken-digits-")
    assert again != handle


def test_wait_returns_when_the_job_ends(here: Path, api: ApiServer) -> None:
    command = ("--", "train", "it's", "$(x)")
    (here / "one.job.yaml").write_text("command: x\nkubernetes: {image: i}\n")
    submit = ("submit", "one.job.yaml", "--engine", "kubernetes")
    handle = gpuyard(here, *submit, *command).stdout.strip()
    pod = api.one("jobs")["spec"]["template"]["spec"]["containers"][0]
    assert pod["command"] == ["train", "it's", "$$(x)"]
    complete(api, "p")
    done = gpuyard(here, "wait", handle)
    assert (done.returncode, "succeeded" in done.stderr + done.stdout) == (0, True)


def test_queue_names_a_cluster_that_does_not_answer(
    here: Path, api: ApiServer, config: Path
) -> None:
    config.write_text(kubeconfig("http://127.0.0.1:9"))
    done = gpuyard(here, "queue")
    assert "kubernetes" in done.stdout and "127.0.0.1:9" in done.stdout


def test_the_notebook_of_the_page(here: Path, api: ApiServer) -> None:
    dry = gpuyard(here, "submit", "lab.job.yaml", "--engine", "kubernetes", "--dry-run")
    assert {method for method, _ in api.requests} == {"GET"}
    assert "kind: StatefulSet" in dry.stdout
    handle = gpuyard(here, "submit", "lab.job.yaml", "--engine", "kubernetes").stdout.strip()
    assert {path.split("/")[-2] for path in api.objects} == {"statefulsets", "services", "secrets"}
    assert gpuyard(here, "cancel", handle).returncode == 0
    assert api.objects == {}


def test_mistakes_are_explained(here: Path, api: ApiServer) -> None:
    arguments = ("submit", "--engine", "kubernetes", "--gpus", "1", "--", "train")
    done = gpuyard(here, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "kubernetes.image" in done.stderr
    api.stop()
    done = gpuyard(here, "submit", "digits.job.yaml", "--engine", "kubernetes")
    assert done.returncode == 1
    assert "connection refused" in done.stderr
