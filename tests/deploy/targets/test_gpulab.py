"""A deployment on GPULab through real Terraform, with a stand-in for its client; and its job definitions."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuyard.deploy.clouds.gpulab import Gpulab, SubmittedJob, proxy_command
from gpuyard.deploy.clouds.gpulab_definition import build_definition, convert_definition
from gpuyard.deploy.deployment import LoadedDeployment, down, load_deployment, plan
from gpuyard.deploy.terraform.run import Changes
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from gpuyard.specs.targets.testbeds import GpulabTarget
from tests.conftest import Cli
from tests.deploy.provisioning import SECRET, install_standin, quiet, run_provision

FILE = """
name: borrowed
cluster: {name: borrowed, nodes: 2, machine: {gpu: v100-sxm2-16gb, gpus: 1}, network: {rate: 10 Gbit/s}}
target: {kind: gpulab, project: scaling, image: 'nvidia/cuda:12.4.1-devel-ubuntu22.04', gpu_model: [V100], cluster_id: 4}
"""


@pytest.fixture
def lab(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the stand-in's directory, with the client on the path."""
    del home
    folder, certificate = install_standin(
        tmp_path, monkeypatch, client="gpulab-cli", module="tests.deploy.targets.gpulab_standin"
    )
    monkeypatch.setenv("GPUYARD_GPULAB_WAIT_SCALE", "0.01")
    monkeypatch.setenv("GPULAB_CERT", str(certificate))
    return folder


@pytest.fixture
def loaded(lab: Path, tmp_path: Path) -> LoadedDeployment:
    del lab
    path = tmp_path / "borrowed.deployment.yaml"
    path.write_text(FILE)
    return load_deployment(path)


def jobs(lab: Path, status: str = "RUNNING") -> list[dict[str, Any]]:
    entries = [json.loads(path.read_text()) for path in lab.glob("*.job")]
    return sorted(
        (job for job in entries if job["state"]["status"] == status),
        key=lambda job: str(job["name"]),
    )


@pytest.mark.timeout(300)
def test_jobs_are_planned_made_unchanged_missed_and_removed(
    lab: Path, loaded: LoadedDeployment, home: Path
) -> None:
    assert plan(loaded).changes == Changes(2, 0, 0)
    assert not list(lab.glob("*.job"))
    assert run_provision(loaded) == Changes(2, 0, 0)
    first, second = jobs(lab)
    assert first["name"].endswith("-0")
    assert first["owner"]["projectUrn"].endswith("+scaling")
    assert first["request"]["resources"] == {
        "gpus": 1, "cpus": 4, "cpuMemoryGb": 16, "gpuModel": ["V100"], "clusterId": 4,
    }  # fmt: skip
    meet = {
        job["request"]["docker"]["environment"]["GPUYARD_RENDEZVOUS"] for job in (first, second)
    }
    assert len(meet) == 1  # the directory for their addresses
    head = loaded.state.hosts()[0]
    assert (head.address, head.user) == ("10.2.46.1", "root")
    assert "fffalice@bastion.ilabt.imec.be" in head.proxy_command
    assert plan(loaded).changes == Changes()
    assert len(loaded.target.list_existing(loaded.state)) == 2

    Gpulab.from_environment().cancel(second["uuid"])
    assert plan(loaded).changes == Changes(1, 0, 0)
    assert run_provision(loaded) == Changes(1, 0, 0)
    assert len(jobs(lab)) == 2

    written = "".join(p.read_text(errors="replace") for p in home.rglob("*") if p.is_file())
    assert "gpuyard_gpulab_job" in written
    assert SECRET not in written
    assert down(loaded, quiet) == []
    assert jobs(lab) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_rejected_failed_and_lost_requests_are_reported(
    lab: Path, loaded: LoadedDeployment
) -> None:
    (lab / "refuse").write_text("No permission to submit job.")
    with pytest.raises(GpuyardError, match="No permission to submit job"):
        run_provision(loaded)
    (lab / "refuse").unlink()
    (lab / "fails").touch()
    with pytest.raises(GpuyardError, match="finished before it ran"):
        run_provision(loaded)
    (lab / "fails").unlink()
    # submitted by one who was killed before it was written down: taken, not submitted twice
    loaded.state.ensure_token()
    lost = json.loads(
        loaded.target.variables(loaded.deployment, loaded.cluster, loaded.state)["definitions"][0]
    )
    identity = Gpulab.from_environment().submit(json.dumps(lost), "scaling")
    run_provision(loaded)
    assert identity in {job["uuid"] for job in jobs(lab)}
    assert len(jobs(lab)) == 2
    lost["name"] = lost["name"][:-1] + "7"  # one that Terraform does not know of
    Gpulab.from_environment().submit(json.dumps(lost), "scaling")
    assert down(loaded, quiet) == []
    assert jobs(lab) == jobs(lab, "QUEUED") == []


def test_a_missing_client_or_certificate_is_reported_with_a_fix(
    lab: Path, loaded: LoadedDeployment, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = str(tmp_path / "borrowed.deployment.yaml")
    monkeypatch.setenv("GPULAB_CERT", str(tmp_path / "lost.pem"))
    assert "not a file" in " ".join(cli("deploy", "plan", file, status=1).stderr.split())
    monkeypatch.delenv("GPULAB_CERT")
    for verb in ("plan", "up"):
        assert "set GPULAB_CERT" in " ".join(cli("deploy", verb, file, status=1).stderr.split())
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(MissingRequirement, match="imecilabt-gpulab-cli"):
        Gpulab.from_environment()


def test_more_jobs_than_a_user_may_have_are_refused(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.deployment.yaml"
    path.write_text(FILE.replace("nodes: 2", "nodes: 11"))
    assert "at most 10 jobs" in cli("deploy", "plan", str(path), status=2).stderr


TARGET = GpulabTarget(kind="gpulab", project="p", image="debian:stable").model_copy(
    update={"ttl": 3600.0}
)


@pytest.mark.parametrize(("nodes", "gpus"), [(1, 10), (10, 1)])
def test_one_job_with_ten_gpus_and_ten_jobs_with_one(nodes: int, gpus: int) -> None:
    definitions = [
        build_definition(TARGET, "x", node=n, nodes=nodes, gpus=gpus, public_key="k")
        for n in range(nodes)
    ]
    assert sum(definition["request"]["resources"]["gpus"] for definition in definitions) == 10
    assert len({definition["name"] for definition in definitions}) == nodes
    assert definitions[0]["request"]["scheduling"]["maxDuration"] == "60 minutes"


def test_jobs_find_each_other_in_the_shared_storage(tmp_path: Path) -> None:
    """The command itself, run by this machine's shell."""
    target = TARGET.model_copy(update={"storage": str(tmp_path)})
    for node in range(2):
        docker = build_definition(target, "x", node=node, nodes=2, gpus=1, public_key="k")[
            "request"
        ]["docker"]
        argv = [*docker["command"][:2], docker["command"][2].replace("exec sleep infinity", "true")]
        subprocess.run(argv, env={**os.environ, **docker["environment"]}, check=True)
    meet = tmp_path / ".gpuyard" / "x"
    assert sorted(path.name for path in meet.iterdir()) == ["node0", "node1"]
    assert (meet / "node1").read_text().strip()


def test_a_definition_of_version_1_is_converted() -> None:
    """The definition is from GPULab's documentation, as in the founding paper."""
    old = {
        "jobDefinition": {
            "name": "helloworld", "description": "Hello", "clusterId": 1,
            "resources": {"gpus": 1, "systemMemory": 2048, "cpuCores": 2, "minCudaVersion": 10},
            "dockerImage": "gpulab.ilabt.imec.be:5000/sample:nvidia-smi", "command": "nvidia-smi",
            "jobDataLocations": [{"mountPoint": "/project"}], "portMappings": [],
        }
    }  # fmt: skip
    new = convert_definition(json.dumps(old))
    assert new["request"]["resources"] == {
        "gpus": 1, "cpus": 2, "cpuMemoryGb": 3, "minCudaVersion": 10, "clusterId": 1,
    }  # fmt: skip
    assert new["request"]["docker"]["storage"] == [
        {"hostPath": "/project", "containerPath": "/project"}
    ]
    assert new["request"]["docker"]["command"] == "nvidia-smi"
    assert convert_definition(json.dumps(new)) == new


@pytest.mark.parametrize("junk", ["", "[]", "{}", '{"jobDefinition": {"name": 1}}', "[" * 5000])
def test_an_invalid_definition_is_reported(junk: str) -> None:
    with pytest.raises(UserMistake):
        convert_definition(junk)


@pytest.mark.parametrize(
    "answer",
    [
        "{}",
        "nonsense",
        '{"uuid": "x", "name": "n", "state": {"status": "RUNNING"}}',
        json.dumps(
            {
                "uuid": "bd9fd6ba-505d-11e9-94d0-8f0c600a321d",
                "name": "n",
                "state": {"status": "RUNNING", "resources": {"sshHost": "-oProxyCommand=x"}},
            }
        ),
    ],
)
def test_invalid_answers_are_reported(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gpulab, "_run", lambda *_: answer)
    with pytest.raises(GpuyardError, match="gpulab-cli"):
        Gpulab("x").job("x")


def test_the_proxy_command_is_one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_CERT", "/home/alice/my login.pem")
    job = SubmittedJob(
        "i", "n", "RUNNING", "10.2.46.1", 2222, "root", ("bastion.example", 22, "alice")
    )
    assert proxy_command(job) == (
        "ssh -i '/home/alice/my login.pem' -p 22 -W 10.2.46.1:2222 alice@bastion.example"
    )
    assert proxy_command(SubmittedJob("i", "n", "RUNNING")) == ""
