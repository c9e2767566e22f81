"""What a job file says to Kubernetes only."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from gpuyard.specs.base import Bytes, Line, Name, Spec

KubernetesKind = Literal["job", "trainjob", "pytorchjob", "notebook"]

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-.a-z0-9]*[a-z0-9])?")
_KEY = re.compile(
    r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def _like(shape: re.Pattern[str], most: int, what: str) -> tuple[AfterValidator, WithJsonSchema]:
    def validate(text: str) -> str:
        if len(text) > most or not shape.fullmatch(text):
            raise ValueError(f"expected {what} of at most {most} characters, got {text!r}")
        return text

    pattern = f"^{shape.pattern}$"
    return AfterValidator(validate), WithJsonSchema(
        {"type": "string", "pattern": pattern, "maxLength": most}
    )


def _absolute(path: str) -> str:
    if not path.startswith("/") or ":" in path or ".." in path.split("/"):
        raise ValueError(f"expected an absolute path in the container, got {path!r}")
    if path.rstrip("/") == "/dev/shm":  # noqa: S108
        raise ValueError("expected another path: gpuyard mounts the node's memory there")
    return path


_WORD = "lower-case letters, digits and '-'"
Label = Annotated[str, *_like(_LABEL, 63, _WORD)]
ObjectName = Annotated[str, *_like(_SUBDOMAIN, 253, f"{_WORD} or '.'")]
LabelKey = Annotated[str, *_like(_KEY, 317, "a label's key, like example.com/gpu-model")]
LabelValue = Annotated[str, *_like(_VALUE, 63, "letters, digits, '-', '_' and '.'")]
MountPath = Annotated[Line, AfterValidator(_absolute)]


class KubernetesOptions(Spec):
    """Where and as what it runs there."""

    kind: Annotated[
        KubernetesKind,
        Field(description="as what it is submitted; notebook: its command starts JupyterLab"),
    ] = "job"
    image: Annotated[
        Line | None,
        Field(max_length=500, description="the container image that has the command"),
    ] = None
    context: Annotated[
        Name | None, Field(description="of your kubeconfig; else the current one")
    ] = None
    namespace: Annotated[Label | None, Field(description="else the context's")] = None
    queue: Annotated[
        ObjectName | None, Field(description="Kueue's local queue, which says when it starts")
    ] = None
    priority_class: Annotated[
        ObjectName | None,
        Field(description="Kueue's with a queue, else the pods'; numbers mean nothing there"),
    ] = None
    runtime: Annotated[
        ObjectName, Field(description="of a trainjob: Kubeflow's ClusterTrainingRuntime")
    ] = "torch-distributed"
    gpu_resource: Annotated[
        LabelKey, Field(description="what nodes call their GPUs, like amd.com/gpu")
    ] = "nvidia.com/gpu"
    cpus: Annotated[float | None, Field(gt=0, le=100_000, description="on each node")] = None
    memory: Annotated[Bytes | None, Field(gt=0, description="on each node, like 64 GB")] = None
    volumes: Annotated[
        dict[MountPath, ObjectName],
        Field(max_length=50, description="where in the container → PersistentVolumeClaim"),
    ] = {}  # noqa: RUF012
    node_selector: Annotated[
        dict[LabelKey, LabelValue],
        Field(max_length=50, description="labels of the nodes that it may run on"),
    ] = {}  # noqa: RUF012
