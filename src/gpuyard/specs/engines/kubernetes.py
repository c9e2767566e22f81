"""The keys of a job file that apply to Kubernetes only."""

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


def _matching(
    shape: re.Pattern[str], max_length: int, description: str
) -> tuple[AfterValidator, WithJsonSchema]:
    """Return the annotations of a text that must match a pattern."""

    def validate(text: str) -> str:
        if len(text) > max_length or not shape.fullmatch(text):
            raise ValueError(
                f"expected {description} of at most {max_length} characters, got {text!r}"
            )
        return text

    pattern = f"^{shape.pattern}$"
    return AfterValidator(validate), WithJsonSchema(
        {"type": "string", "pattern": pattern, "maxLength": max_length}
    )


def _check_mount_path(path: str) -> str:
    if not path.startswith("/") or ":" in path or ".." in path.split("/"):
        raise ValueError(f"expected an absolute path in the container, got {path!r}")
    if path.rstrip("/") == "/dev/shm":  # noqa: S108
        raise ValueError("expected another path: gpuyard mounts the node's memory there")
    return path


_WORD = "lowercase letters, digits, and '-'"
Label = Annotated[str, *_matching(_LABEL, 63, _WORD)]
ObjectName = Annotated[str, *_matching(_SUBDOMAIN, 253, f"{_WORD} or '.'")]
LabelKey = Annotated[str, *_matching(_KEY, 317, "a label's key, like example.com/gpu-model")]
LabelValue = Annotated[str, *_matching(_VALUE, 63, "letters, digits, '-', '_', and '.'")]
MountPath = Annotated[Line, AfterValidator(_check_mount_path)]


class KubernetesOptions(Spec):
    """The kind of object that a job becomes in Kubernetes, and where it runs."""

    kind: Annotated[
        KubernetesKind,
        Field(
            description="kind of object to submit: `job`, `trainjob` or `pytorchjob` (Kubeflow's), or "
            "`notebook`, whose command starts JupyterLab"
        ),
    ] = "job"
    image: Annotated[
        Line | None,
        Field(
            max_length=500,
            description="container image that has the command; required on Kubernetes, except for a "
            "trainjob",
        ),
    ] = None
    context: Annotated[
        Name | None, Field(description="context in your kubeconfig; default: the current one")
    ] = None
    namespace: Annotated[Label | None, Field(description="namespace; default: the context's")] = (
        None
    )
    queue: Annotated[
        ObjectName | None,
        Field(
            description="local queue of Kueue, which decides when it starts; default: it starts at once"
        ),
    ] = None
    priority_class: Annotated[
        ObjectName | None,
        Field(description="priority class of Kueue with a queue, otherwise of the pods"),
    ] = None
    runtime: Annotated[ObjectName, Field(description="ClusterTrainingRuntime of a trainjob")] = (
        "torch-distributed"
    )
    gpu_resource: Annotated[
        LabelKey, Field(description="resource name of the nodes' GPUs, like `amd.com/gpu`")
    ] = "nvidia.com/gpu"
    cpus: Annotated[
        float | None,
        Field(
            gt=0,
            le=100_000,
            description="number of CPU cores on each node; default: the namespace's own",
        ),
    ] = None
    memory: Annotated[
        Bytes | None,
        Field(gt=0, description="memory on each node, like `64 GB`; default: the namespace's own"),
    ] = None
    volumes: Annotated[
        dict[MountPath, ObjectName],
        Field(max_length=50, description="PersistentVolumeClaim for each path in the container"),
    ] = {}  # noqa: RUF012
    node_selector: Annotated[
        dict[LabelKey, LabelValue],
        Field(max_length=50, description="labels of the nodes that it may run on"),
    ] = {}  # noqa: RUF012
