"""Manifests: accepted by the API server, and exact for the container's process."""

import io
import json
import re
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import escape
from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.request import KubernetesRequest, format_yaml
from gpuyard.jobs.job import Job
from tests.jobs.engines.kubernetes.conftest import new_job
from tests.jobs.engines.kubernetes.schema_check import VERSIONS, problems

AWKWARD = {
    "quotes": """it's "quoted" `here`""",
    "lines": "one\ntwo\r\n\tthree\n",
    "shell": "$(touch /tmp/x) ${HOME} $HOME $$ $ $$(A) $(A",
    "long": "x$(y)" * 2000,
    "yaml": "yes",
    "unicode": "ü \U0001f600 \u2028 \x85 \x1b[31m \u202e",
    "empty": "",
}
FULL: dict[str, Any] = {
    "name": 'Spöken "digits"\n$(x)',
    "gpus": 8,
    "env": {"LEVEL": "info", "NOTE": AWKWARD["shell"]},
    "time_limit": "2 h",
    "checkpoint": {"directory": "/checkpoints/digits", "time": "90 s"},
    "retries": {"lost": 2, "failed": 1},
    "kubernetes": {
        "queue": "team-a",
        "priority_class": "research",
        "cpus": 7.5,
        "memory": "64 GB",
        "volumes": {"/checkpoints": "ckpt", "/data": "datasets", "/more": "datasets"},
        "node_selector": {"example.com/gpu-model": "a100"},
    },
}


def plan(job: Job) -> KubernetesRequest:
    return KubernetesEngine().plan(job)


def create_full_job(kind: str, nodes: int, **more: Any) -> Job:
    spec = {**FULL, "nodes": nodes, **more}
    spec["kubernetes"] = {**FULL["kubernetes"], "kind": kind, **more.get("kubernetes", {})}
    if kind == "trainjob":
        spec["kubernetes"]["volumes"] = {"/checkpoints": "ckpt", "/data": "datasets"}
    if kind == "notebook":
        spec.pop("time_limit")
        return new_job("jupyter", "lab", **spec)
    return new_job(*AWKWARD.values(), **spec)


def get_container(request: KubernetesRequest) -> dict[str, Any]:
    """Return the container that runs the command, wherever its kind has it."""
    spec = request.manifests[0]["spec"]
    if request.kind == "trainjob":
        container = spec["trainer"]
    elif request.kind == "pytorchjob":
        container = spec["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    else:
        container = spec["template"]["spec"]["containers"][0]
    assert isinstance(container, dict)
    return container


def expand(text: str) -> str:
    """Expand as the API reference specifies: `$$` is a dollar sign, and `$(NAME)` a reference."""
    return re.sub(r"\$\$|\$\(([^)]*)\)", lambda m: "$" if m[0] == "$$" else "EXPANDED", text)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("kind", "nodes"),
    [("job", 1), ("job", 4), ("trainjob", 1), ("trainjob", 4), ("pytorchjob", 1), ("pytorchjob", 4), ("notebook", 1)],
)  # fmt: skip
def test_the_api_accepts_every_manifest(kind: str, nodes: int, version: str) -> None:
    for job in (
        create_full_job(kind, nodes),
        new_job("jupyter", kubernetes={"kind": kind}, gpus=nodes, nodes=nodes),
    ):
        for manifest in plan(job).manifests:
            assert problems(manifest, version) == []


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_schema_check_detects_invalid_manifests(kind: str) -> None:
    manifest = plan(create_full_job(kind, 1)).manifests[0]
    spec = manifest["spec"]
    pod = get_container(plan(create_full_job(kind, 1)))
    assert problems({**manifest, "spec": {**spec, "replica": 1}})
    assert problems({**manifest, "metadata": {**manifest["metadata"], "labels": {"a": 1}}})
    deep = json.loads(json.dumps(manifest).replace(json.dumps(pod["env"][0]["name"]), "7", 1))
    assert problems(deep)


@pytest.mark.parametrize("kind", ["job", "trainjob", "pytorchjob"])
def test_command_and_variables_reach_the_process_exactly(kind: str) -> None:
    env = {f"VAR_{name}": value for name, value in AWKWARD.items()}
    job = new_job(*AWKWARD.values(), env=env, kubernetes={"kind": kind})
    container = get_container(plan(job))
    assert [expand(word) for word in container["command"]] == list(AWKWARD.values())
    variables = {
        variable["name"]: expand(variable["value"])
        for variable in container["env"]
        if "value" in variable
    }
    assert {name: variables[name] for name in env} == env
    assert variables["GPUYARD_JOB"] == job.uuid


@given(st.text(alphabet=st.sampled_from("$()AB{} \n"), max_size=40))
def test_every_text_is_escaped_exactly(text: str) -> None:
    assert expand(escape(text)) == text


@given(
    st.recursive(
        st.text(max_size=30) | st.integers(-1000, 1000) | st.booleans() | st.sampled_from(list(AWKWARD.values())),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
        max_leaves=20,
    )
)  # fmt: skip
def test_every_parser_reads_the_same_yaml(value: Any) -> None:
    """PyYAML reads YAML 1.1, as the API server does, and ruamel reads 1.2."""
    text = format_yaml({"value": value})
    assert yaml.safe_load(text) == {"value": value}
    assert YAML(typ="safe", pure=True).load(io.StringIO(text)) == {"value": value}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_dry_run_prints_the_manifests(kind: str) -> None:
    request = plan(create_full_job(kind, 1))
    assert list(yaml.safe_load_all(request.text())) == list(request.manifests)
    assert request.document()["manifests"] == list(request.manifests)
    assert "\x1b" not in request.text()
    assert "\u202e" not in request.text()


def test_the_object_is_named_after_the_job_and_its_uuid() -> None:
    job = create_full_job("job", 1)
    metadata = plan(job).manifests[0]["metadata"]
    assert metadata["name"] == f"spoken-digits-x-{job.uuid[:8]}"
    assert metadata["labels"]["gpuyard/job-id"] == job.uuid
    assert metadata["annotations"]["gpuyard/name"] == FULL["name"]
    assert Job.from_document(json.loads(metadata["annotations"]["gpuyard/job"])) == job


@pytest.mark.parametrize("name", ["17", "-", "训练", "x" * 500, "A.b_c"])
def test_any_job_name_gives_a_valid_object_name(name: str) -> None:
    for kind in KINDS:
        request = plan(new_job("jupyter", name=name, kubernetes={"kind": kind}))
        assert re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", request.name)
        assert len(request.name) <= 40  # operators append to it
        assert problems(request.manifests[0]) == []


def test_kueue_gets_its_labels_and_starts_the_object() -> None:
    for kind in ("job", "trainjob", "pytorchjob"):
        manifest = plan(create_full_job(kind, 2)).manifests[0]
        assert manifest["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
        assert manifest["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "research"
        assert (manifest["spec"].get("runPolicy") or manifest["spec"])["suspend"] is True
        without = plan(new_job("x", kubernetes={"kind": kind})).manifests[0]
        assert "suspend" not in (without["spec"].get("runPolicy") or without["spec"])
        assert not any("kueue" in label for label in without["metadata"]["labels"])


def test_gpus_are_requested_per_node_and_by_resource_name() -> None:
    for kind in ("job", "pytorchjob"):
        limits = get_container(plan(create_full_job(kind, 4)))["resources"]["limits"]
        assert limits == {"nvidia.com/gpu": 2, "cpu": "7500m", "memory": "64000000000"}
    train = get_container(plan(create_full_job("trainjob", 4)))
    assert train["resourcesPerNode"]["limits"]["nvidia.com/gpu"] == 2
    assert (train["numNodes"], train["numProcPerNode"]) == (4, 2)
    amd = new_job("x", gpus=4, kubernetes={"gpu_resource": "amd.com/gpu"})
    assert get_container(plan(amd))["resources"]["limits"] == {"amd.com/gpu": 4}


def test_nodes_of_a_job_find_each_other_through_a_headless_service() -> None:
    job, service = plan(create_full_job("job", 4)).manifests
    name, spec = job["metadata"]["name"], job["spec"]
    assert (spec["completions"], spec["parallelism"], spec["completionMode"]) == (4, 4, "Indexed")
    assert spec["template"]["spec"]["subdomain"] == service["metadata"]["name"] == name
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"]  # they meet before any is ready
    assert service["spec"]["selector"].items() <= spec["template"]["metadata"]["labels"].items()
    env = {item["name"]: item for item in get_container(plan(create_full_job("job", 4)))["env"]}
    assert env["PET_NNODES"]["value"] == "4"
    assert env["PET_NPROC_PER_NODE"]["value"] == "2"
    assert "job-completion-index" in env["PET_NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    master = {item["name"]: item for item in spec["template"]["spec"]["containers"][0]["env"]}
    assert master["PET_MASTER_ADDR"]["value"] == f"{name}-0.{name}"
    own = new_job("x", nodes=2, gpus=2, env={"PET_MASTER_PORT": "1"})
    assert [item["value"] for item in get_container(plan(own))["env"] if item["name"] == "PET_MASTER_PORT"] == ["1"]  # fmt: skip


def test_a_pytorchjob_has_one_master_and_the_rest_workers() -> None:
    spec = plan(create_full_job("pytorchjob", 4)).manifests[0]["spec"]
    replicas = {name: item["replicas"] for name, item in spec["pytorchReplicaSpecs"].items()}
    assert replicas == {"Master": 1, "Worker": 3}
    assert spec["nprocPerNode"] == "2"


def test_a_failing_command_is_not_retried_like_a_lost_node() -> None:
    lost = {"gpus": 2, "retries": 2}
    batch = plan(new_job("x", **lost)).manifests[0]["spec"]
    assert batch["backoffLimit"] == 2
    assert [rule["action"] for rule in batch["podFailurePolicy"]["rules"]] == ["Count", "FailJob"]
    operator = plan(new_job("x", **lost, kubernetes={"kind": "pytorchjob"})).manifests[0]["spec"]
    assert operator["runPolicy"]["backoffLimit"] == 2
    assert operator["pytorchReplicaSpecs"]["Master"]["restartPolicy"] == "ExitCode"

    both = {"gpus": 2, "retries": {"lost": 2, "failed": 3}}
    batch = plan(new_job("x", **both)).manifests[0]["spec"]
    assert batch["backoffLimit"] == 5
    assert "podFailurePolicy" not in batch
    operator = plan(new_job("x", **both, kubernetes={"kind": "pytorchjob"})).manifests[0]["spec"]
    assert operator["pytorchReplicaSpecs"]["Master"]["restartPolicy"] == "OnFailure"


def test_a_time_limit_ends_a_job_and_a_deadline_does_not() -> None:
    for kind in ("job", "trainjob", "pytorchjob"):
        limited = json.dumps(plan(create_full_job(kind, 1)).manifests[0])
        assert '"activeDeadlineSeconds": 7200' in limited
        with_deadline = new_job("x", deadline="tomorrow 8:00", kubernetes={"kind": kind})
        assert "activeDeadlineSeconds" not in json.dumps(plan(with_deadline).manifests[0])


def test_checkpoints_are_on_a_claim_and_get_time_to_be_written() -> None:
    job = create_full_job(
        "job",
        1,
        checkpoint={"directory": "/checkpoints", "command": ["save", "$(x)"], "time": "90 s"},
    )
    pod = plan(job).manifests[0]["spec"]["template"]["spec"]
    claims = {
        item["name"]: item["persistentVolumeClaim"]["claimName"] for item in pod["volumes"][1:]
    }
    mounts = {
        item["mountPath"]: claims.get(item["name"]) for item in pod["containers"][0]["volumeMounts"]
    }
    assert mounts == {
        "/dev/shm": None,  # noqa: S108
        "/checkpoints": "ckpt",
        "/data": "datasets",
        "/more": "datasets",
    }
    assert pod["terminationGracePeriodSeconds"] == 90
    # Kubernetes expands nothing in a hook
    assert pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"] == ["save", "$(x)"]


def test_a_notebook_is_internal_and_its_token_in_a_secret() -> None:
    request = plan(create_full_job("notebook", 1))
    notebook, service = request.manifests
    assert notebook["kind"] == "StatefulSet"
    assert notebook["spec"]["replicas"] == 1
    assert service["spec"]["type"] == "ClusterIP"
    assert "nodePort" not in json.dumps(request.manifests)
    pod = get_container(request)
    token = next(item for item in pod["env"] if item["name"] == "JUPYTER_TOKEN")
    assert token["valueFrom"]["secretKeyRef"] == {"name": request.name, "key": "token"}
    assert pod["command"][:2] == ["jupyter", "lab"]
    assert (
        "Secret" in request.text().partition("apiVersion")[0]
    )  # the comment explains how to apply it by hand


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"kubernetes": {"image": None}}, "kubernetes.image"),
        ({"env": {"1A": "x"}}, "'1A'"),
        ({"env": {"A B": "x"}}, "'A B'"),
        ({"cwd": "here"}, "'here'"),
        ({"after": ["local://17"]}, "after: "),
        ({"checkpoint": {"directory": "/ckpt", "signal": "SIGUSR1"}}, "checkpoint.signal: "),
        ({"checkpoint": "/ckpt"}, "would be lost with its pod"),
        ({"checkpoint": "/ckpt/../x", "kubernetes": {"volumes": {"/ckpt": "c"}}}, "would be lost"),
        ({"checkpoint": "/ckpt2", "kubernetes": {"volumes": {"/ckpt": "c"}}}, "would be lost"),
        ({"env": {f"V{n}": "x" * 90_000 for n in range(3)}}, "250,000"),
        ({"kubernetes": {"kind": "trainjob"}, "cwd": "/work"}, "cwd: a TrainJob"),
        ({"kubernetes": {"kind": "trainjob"}, "env": {"PET_NNODES": "2"}}, "PET_NNODES"),
        ({"kubernetes": {"kind": "trainjob"}, "env": {f"V{n}": "" for n in range(200)}}, "at most 128 words"),
        ({"kubernetes": {"kind": "trainjob"}, "checkpoint": {"command": ["save"]}}, "checkpoint.command: "),
        ({"kubernetes": {"kind": "trainjob", "priority_class": "p"}}, "add kubernetes.queue"),
        ({"kubernetes": {"kind": "trainjob", "volumes": {"/a": "c", "/b": "c"}}}, "kubernetes.volumes: "),
        ({"kubernetes": {"kind": "notebook"}, "nodes": 2, "gpus": 2}, "nodes: a notebook"),
        ({"kubernetes": {"kind": "notebook"}, "time_limit": "1 h"}, "time_limit: "),
        ({"kubernetes": {"kind": "notebook"}, "env": {"JUPYTER_TOKEN": "x"}}, "env: "),
        ({"kubernetes": {"kind": "notebook"}, "command": ["lab", "--IdentityProvider.token="]}, "command: "),
    ],
)  # fmt: skip
def test_unsupported_settings_are_rejected_before_submission(
    spec: dict[str, Any], words: str
) -> None:
    command = spec.pop("command", ["train"])
    with pytest.raises(UserMistake, match=re.escape(words)):
        plan(new_job(*command, **spec))


def test_a_long_word_in_a_trainjob_is_rejected_before_submission() -> None:
    with pytest.raises(UserMistake, match="65,536 characters"):
        plan(new_job("x", "$" * 40_000, kubernetes={"kind": "trainjob"}))


def test_a_dry_run_lists_caveats() -> None:
    text = plan(new_job("x", gpus="2..8", priority=5, kubernetes={"kind": "trainjob"})).text()
    head = text.partition("apiVersion")[0].replace("\n#   ", " ")
    assert "# gpus: it requests 8, the maximum of 2..8" in head
    assert "# priority: 5 is ignored" in head
    assert "# retries: the runtime torch-distributed" in head
    several = plan(new_job("x", gpus=2, nodes=2)).text().replace("\n#   ", " ")
    assert "one of several nodes is lost" in several
