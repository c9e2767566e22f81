"""Jobs on a real Kubernetes: its API server checks our manifests, and no job is lost or runs twice when parts are killed."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.engines.kubernetes.crds import build_crd
from tests.kubernetes_cluster import (
    GPUS,
    IMAGE,
    NAMESPACE,
    KubernetesCluster,
    kubernetes_cluster,
)

pytestmark = [
    pytest.mark.soak,
    pytest.mark.timeout(3600),
    pytest.mark.xdist_group("kubernetes"),
]

WAIT_SECONDS = 300.0
KUBEFLOW = {"PyTorchJob": "kubeflow.org/v1", "TrainJob": "trainer.kubeflow.org/v1alpha1"}
# each start writes a line, waits for a file, and writes a line at its end
SCRIPT = """\
echo start >> /shared/{name}
echo hello
while [ ! -e /shared/{name}.go ]; do sleep 0.2; done
echo end >> /shared/{name}
exit {status}
"""


@dataclass(frozen=True)
class Lab:
    """A user with a home and job files, outside the cluster but in its network."""

    cluster: KubernetesCluster
    home: Path

    def start(self, *words: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(shutil.which("nsenter")), f"--target={self.cluster.first_process}", "--net", sys.executable, "-m", "gpuyard", *words],
            cwd=self.home,
            env={**os.environ, "KUBECONFIG": str(self.cluster.kubeconfig), "GPUYARD_HOME": str(self.home / "state"),
                 "PATH": str(Path(sys.executable).parent), "COLUMNS": "200"},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def gpuyard(self, *words: str, status: int = 0) -> tuple[str, str]:
        """Run a command, check its exit status, and return its output."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == status, (words, out, err)
        assert "Traceback" not in err and "InsecureRequestWarning" not in err
        return out, err

    def write(self, name: str, exit_status: int = 0, **spec: Any) -> str:
        """Write a job file and return its name."""
        command = ["sh", "-c", SCRIPT.format(name=name, status=exit_status)]
        options = {"image": IMAGE, "volumes": {"/shared": "shared"}, **spec.pop("kubernetes", {})}
        document = {"name": name, "command": command, "kubernetes": options, **spec}
        (self.home / f"{name}.job.yaml").write_text(json.dumps(document))
        return f"{name}.job.yaml"

    def submit(self, name: str, **spec: Any) -> str:
        out, _ = self.gpuyard("submit", self.write(name, **spec), "--engine", "kubernetes")
        return out.strip()

    def status(self, handle: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.gpuyard("status", handle, "--json")[0])
        return document

    def wait_for(
        self, handle: str, condition: Callable[[Mapping[str, Any]], bool]
    ) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition(status := self.status(handle)):
            assert time.monotonic() < deadline, status
            time.sleep(0.3)
        return status

    def wait_for_start(self, name: str, handle: str) -> None:
        """Wait until a job's command has begun and is reported as running."""
        self.wait_for(handle, lambda status: status["state"] == "running")
        self.cluster.wait_for(lambda: self.lines(name) == ["start"])

    def release(self, *names: str) -> None:
        """Let jobs finish."""
        for name in names:
            (self.cluster.directory / "shared" / f"{name}.go").touch()

    def lines(self, name: str) -> list[str]:
        path = self.cluster.directory / "shared" / name
        return path.read_text().split() if path.exists() else []


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    with kubernetes_cluster() as running:
        _prepare(running)
        yield running


@pytest.fixture
def lab(cluster: KubernetesCluster, tmp_path: Path) -> Iterator[Lab]:
    yield Lab(cluster, tmp_path)
    jobs = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
    cluster.request("DELETE", f"{jobs}?propagationPolicy=Background")


def _prepare(cluster: KubernetesCluster) -> None:
    """Create a namespace, a user's rights, a shared volume, and Kubeflow's kinds."""
    space = f"/api/v1/namespaces/{NAMESPACE}"
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}"
    group = "rbac.authorization.k8s.io"
    cluster.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    rules = [{"apiGroups": ["kubeflow.org", "trainer.kubeflow.org"], "resources": ["*"], "verbs": ["*"]}]  # fmt: skip
    cluster.request("POST", f"{rights}/roles", {"metadata": {"name": "kubeflow"}, "rules": rules})
    for kind, name in (("ClusterRole", "edit"), ("Role", "kubeflow")):
        reference = {"apiGroup": group, "kind": kind, "name": name}
        users = [{"apiGroup": group, "kind": "User", "name": "anna"}]
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": users}
        cluster.request("POST", f"{rights}/rolebindings", binding)
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    host = {"hostPath": {"path": str(cluster.directory / "shared")}}
    volume = {**claim, **host, "capacity": {"storage": "1Gi"}}
    cluster.request("POST", "/api/v1/persistentvolumes", {"metadata": {"name": "shared"}, "spec": volume})  # fmt: skip
    request = {**claim, "resources": {"requests": {"storage": "1Gi"}}}
    cluster.request("POST", f"{space}/persistentvolumeclaims", {"metadata": {"name": "shared"}, "spec": request})  # fmt: skip
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for kind, api_version in KUBEFLOW.items():
        definition = build_crd(kind, api_version)
        cluster.request("POST", crds, definition)
        path = f"/apis/{api_version}/namespaces/{NAMESPACE}/{definition['spec']['names']['plural']}"
        cluster.wait_for(lambda path=path: "items" in cluster.request("GET", path))  # type: ignore[misc]


def find_dropped(sent: Any, kept: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of values that the server did not keep."""
    if isinstance(sent, dict) and isinstance(kept, dict):
        for key, value in sent.items():
            if key not in kept:
                yield f"{path}.{key}"
            else:
                yield from find_dropped(value, kept[key], f"{path}.{key}")
    elif isinstance(sent, list) and isinstance(kept, list) and len(sent) == len(kept):
        for index, value in enumerate(sent):
            yield from find_dropped(value, kept[index], f"{path}[{index}]")
    elif str(sent) != str(kept).replace("1Gi", str(2**30)):  # the server writes a quantity as text
        yield f"{path}: {sent} became {kept}"


FULL = {
    "gpus": 4,
    "time_limit": "1h",
    "env": {"A": "$(B) ü"},
    "checkpoint": {"directory": "/shared/c", "time": "20 s"},
}
JOBS: dict[str, dict[str, Any]] = {
    "job": {},
    "job-full": {**FULL, "cwd": "/shared", "retries": {"failed": 2}, "kubernetes": {"node_selector": {"a": "b"}, "cpus": 1.5, "memory": "1 GiB"}},
    "pytorchjob": {"nodes": 2, "gpus": 2, "kubernetes": {"kind": "pytorchjob"}},
    "pytorchjob-full": {**FULL, "nodes": 2, "kubernetes": {"kind": "pytorchjob", "queue": "q", "priority_class": "high"}},
    "trainjob": {"kubernetes": {"kind": "trainjob"}},
    "trainjob-full": {**FULL, "nodes": 4, "kubernetes": {"kind": "trainjob", "queue": "q", "node_selector": {"a": "b"}}},
    "notebook": {"kubernetes": {"kind": "notebook"}},
}  # fmt: skip


@pytest.mark.parametrize("name", JOBS)
def test_the_server_accepts_every_field(lab: Lab, name: str) -> None:
    file = lab.write(name, **JOBS[name])
    out, _ = lab.gpuyard("submit", file, "--engine", "kubernetes", "--dry-run", "--json")
    for manifest in json.loads(out)["manifests"]:
        api = manifest["apiVersion"]
        base = f"/apis/{api}" if "/" in api else f"/api/{api}"
        path = f"{base}/namespaces/{NAMESPACE}/{manifest['kind'].lower()}s?dryRun=All"
        kept = lab.cluster.request("POST", path, manifest)
        assert list(find_dropped(manifest, kept)) == []


def test_a_job_from_submit_to_its_end(lab: Lab) -> None:
    out, err = lab.gpuyard("submit", lab.write("whole", gpus=2), "--engine", "kubernetes")
    handle = out.strip()
    assert "v1.20.2" in err and err.count("insecure-skip-tls-verify") == 1
    lab.wait_for_start("whole", handle)
    with lab.start("logs", "-f", handle) as follow, lab.start("wait", handle) as wait:
        listed = json.loads(lab.gpuyard("queue", "--json")[0])["jobs"]
        assert [(job["handle"], job["state"], job["gpus"]) for job in listed] == [(handle, "running", 2)]  # fmt: skip
        lab.release("whole")
        assert wait.wait(WAIT_SECONDS) == 0
        assert follow.communicate(timeout=WAIT_SECONDS)[0] == "hello\n"
    status = lab.status(handle)
    assert (status["state"], status["exit_status"], status["restarts"]) == ("succeeded", 0, 0)
    assert set(status["nodes"]) <= {"node1", "node2"}
    assert lab.gpuyard("logs", handle)[0] == "hello\n"
    assert lab.lines("whole") == ["start", "end"]


def test_a_failing_command_is_not_started_again(lab: Lab) -> None:
    handle = lab.submit("failing", exit_status=3, retries={"lost": 2})
    lab.release("failing")
    lab.gpuyard("wait", handle, status=1)
    status = lab.status(handle)
    assert (status["state"], status["exit_status"], status["restarts"]) == ("failed", 3, 0)
    time.sleep(15)  # the first restart would come after 10 s
    assert lab.lines("failing") == ["start", "end"]
    again = lab.submit("again", exit_status=3, retries={"lost": 0, "failed": 1})
    lab.release("again")
    lab.gpuyard("wait", again, status=1)
    assert lab.lines("again") == ["start", "end"] * 2


def test_the_server_is_too_old_for_several_nodes(lab: Lab) -> None:
    file = lab.write("two", nodes=2, gpus=2)
    _, err = lab.gpuyard("submit", file, "--engine", "kubernetes", status=2)
    assert "nodes" in err and "v1.20.2" in err and "1.22" in err


def test_gpus_are_counted_and_a_cancel_is_shown(lab: Lab) -> None:
    patient = {"gpus": GPUS, "checkpoint": {"directory": "/shared/c", "time": "8 s"}}
    handles = {name: lab.submit(name, **patient) for name in ("left", "right")}
    for name, handle in handles.items():
        lab.wait_for_start(name, handle)
    assert {lab.status(handle)["nodes"][0] for handle in handles.values()} == {"node1", "node2"}
    third = lab.submit("third", **patient)
    lab.wait_for(third, lambda status: "nvidia.com/gpu" in status["reason"])
    lab.gpuyard("cancel", handles["left"])
    shown = set()
    deadline = time.monotonic() + WAIT_SECONDS
    while (status := lab.status(handles["left"]))["state"] != "cancelled":
        assert status["canceling"] and time.monotonic() < deadline
        shown.add(lab.gpuyard("status", handles["left"])[0].partition("state")[2].split()[0])
    assert shown <= {"canceling", "cancelled"} and "canceling" in shown
    lab.wait_for_start("third", third)  # it gets the GPUs
    lab.release("third", "right")
    lab.gpuyard("wait", third, handles["right"])
    assert (lab.lines("left"), lab.lines("third")) == (["start"], ["start", "end"])


def test_the_api_server_is_killed(lab: Lab) -> None:
    names = [f"k{number}" for number in range(4)]
    handles = {name: lab.submit(name) for name in names}
    for name, handle in handles.items():
        lab.wait_for_start(name, handle)
    with lab.start("wait", *handles.values()) as wait:
        lab.cluster.kill("apiserver")
        status = lab.status(handles["k0"])
        assert status["state"] == "unknown" and "6443" in status["reason"]
        assert status["name"] == "k0"  # from the local record
        out, _ = lab.gpuyard("queue")
        assert "kubernetes" in out and "6443" in out
        file = lab.write("k4")
        _, err = lab.gpuyard("submit", file, "--engine", "kubernetes", status=1)
        assert "6443" in err
        lab.gpuyard("cancel", handles["k1"], status=1)
        lab.release("k0", "k2")  # they end while nobody can report it
        lab.cluster.wait_for(lambda: lab.lines("k0") == lab.lines("k2") == ["start", "end"])
        lab.cluster.start_api_server()
        lab.wait_for(handles["k0"], lambda status: status["state"] == "succeeded")
        lab.release("k1", "k3")
        assert wait.wait(WAIT_SECONDS) == 0
    for name in names:
        assert lab.lines(name) == ["start", "end"]
        assert lab.status(handles[name])["restarts"] == 0
    assert lab.lines("k4") == []


def test_a_kubelet_is_killed(lab: Lab) -> None:
    handle = lab.submit("alone")
    lab.wait_for_start("alone", handle)
    (node,) = lab.status(handle)["nodes"]
    lab.cluster.kill(f"kubelet-{node}")
    status = lab.wait_for(handle, lambda status: status["state"] == "unknown")
    assert node in status["reason"]
    time.sleep(15)  # without its toleration, the pod would be replaced after 5 s
    assert lab.lines("alone") == ["start"]
    lab.cluster.start_kubelet(node)
    lab.wait_for(handle, lambda status: status["state"] == "running")
    lab.release("alone")
    lab.gpuyard("wait", handle)
    status = lab.status(handle)
    assert (status["state"], status["restarts"]) == ("succeeded", 0)
    assert lab.lines("alone") == ["start", "end"]
