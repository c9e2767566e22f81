"""A separate cluster for each test, and a kubeconfig that refers only to it."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.jobs.engines.kubernetes.engine import KubernetesEngine
from gpuyard.jobs.job import Job
from gpuyard.specs.job import JobSpec
from tests.jobs.engines.kubernetes.api_server import TOKEN, ApiServer

IMAGE = "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"


def kubeconfig(server: str, token: str = TOKEN, context: str = "lab") -> str:
    """Return a kubeconfig as JSON, which is valid YAML."""
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": context,
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [
                {"name": context, "context": {"cluster": "c", "user": "u", "namespace": "team"}}
            ],
        }
    )


@pytest.fixture(autouse=True)
def _hide_user_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path / "home"))


@pytest.fixture
def api() -> Iterator[ApiServer]:
    server = ApiServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.stop()
    thread.join()


@pytest.fixture
def config(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "kubeconfig"
    path.write_text(kubeconfig(api.url))
    monkeypatch.setenv("KUBECONFIG", str(path))
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    return path


@pytest.fixture
def engine(config: Path) -> KubernetesEngine:
    return KubernetesEngine()


def new_job(*command: str, **spec: Any) -> Job:
    """Create a job with an image; `kubernetes` holds further options."""
    options = {"image": IMAGE, **spec.pop("kubernetes", {})}
    words = list(command) or ["torchrun", "train.py"]
    document = {"command": words, **spec, "kubernetes": options}
    return Job.create(JobSpec.model_validate(document), now=time.time())
