"""Pods: create a job's pod template, and summarize its running pods."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from posixpath import normpath

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import Draft, Manifest

_SHARED_MEMORY, _SHARED_MEMORY_PATH = "shared-memory", "/dev/shm"  # noqa: S108
_RUNNING, _PENDING, _SUCCEEDED, _FAILED = "Running", "Pending", "Succeeded", "Failed"
_UNKNOWN = "Unknown"
_MAX_TIMESTAMP = 250_000_000_000.0  # in the year 9892
_INDEX_KEYS = (
    "batch.kubernetes.io/job-completion-index",  # an annotation, and since 1.28 also a label
    "training.kubeflow.org/replica-type",
    "training.kubeflow.org/replica-index",
)


def create_pod_template(
    draft: Draft,
    container: str,
    *,
    restart: str | None = "Never",
    variables: Sequence[Manifest] = (),
    arguments: Sequence[str] = (),
) -> Manifest:
    """Create the template of one node's pod. The job's own variables override `variables`."""
    spec: Manifest = {
        "containers": [_create_container(draft, container, variables, arguments)],
        "volumes": list_volumes(draft),
        **({} if restart is None else {"restartPolicy": restart}),
    }
    checkpoint = draft.job.spec.checkpoint
    if checkpoint is not None:
        spec["terminationGracePeriodSeconds"] = max(1, round(checkpoint.time))
    if draft.options.node_selector:
        spec["nodeSelector"] = dict(draft.options.node_selector)
    if draft.options.priority_class is not None and draft.options.queue is None:
        spec["priorityClassName"] = draft.options.priority_class
    return {"metadata": {"labels": draft.labels}, "spec": spec}


def _create_container(
    draft: Draft, name: str, variables: Sequence[Manifest], arguments: Sequence[str]
) -> Manifest:
    if draft.options.image is None:
        raise UserMistake(
            "kubernetes.image is missing: name a container image with the command, "
            "like pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"
        )
    own = draft.environment()
    own_names = {variable["name"] for variable in own}
    others = [variable for variable in variables if variable["name"] not in own_names]
    container: Manifest = {
        "name": name,
        "image": draft.options.image,
        "command": [*draft.command(), *arguments],
        "env": [*others, *own],
        "resources": list_resources(draft),
        "volumeMounts": list_volume_mounts(draft),
    }
    if draft.job.spec.cwd is not None:
        container["workingDir"] = _check_working_directory(draft)
    checkpoint = draft.job.spec.checkpoint
    if checkpoint is not None and checkpoint.command is not None:
        # Kubernetes expands no variables in a hook's command, so nothing is escaped
        container["lifecycle"] = {"preStop": {"exec": {"command": list(checkpoint.command)}}}
    return container


def list_resources(draft: Draft) -> Manifest:
    """Return the resources of one node; requests equal limits."""
    amounts: Manifest = {draft.options.gpu_resource: draft.gpus_per_node}
    if draft.options.cpus is not None:
        amounts["cpu"] = f"{round(draft.options.cpus * 1000)}m"
    if draft.options.memory is not None:
        amounts["memory"] = str(round(draft.options.memory))
    return {"limits": amounts, "requests": dict(amounts)}


def list_volumes(draft: Draft) -> list[Manifest]:
    """Return existing claims, and memory for /dev/shm: data loaders need more than the default of 64 MB."""
    claims = dict.fromkeys(draft.options.volumes.values())
    return [
        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
        *(
            {"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim}}
            for index, claim in enumerate(claims)
        ),
    ]


def list_volume_mounts(draft: Draft) -> list[Manifest]:
    """Return the mounts; raise UserMistake if checkpoints would be lost with their pod."""
    claims = list(dict.fromkeys(draft.options.volumes.values()))
    checkpoint = draft.job.spec.checkpoint
    if checkpoint is not None and checkpoint.directory is not None:
        _check_persistent(PurePosixPath(normpath(checkpoint.directory)), draft)
    return [
        {"name": _SHARED_MEMORY, "mountPath": _SHARED_MEMORY_PATH},
        *(
            {"name": f"claim-{claims.index(claim)}", "mountPath": path}
            for path, claim in draft.options.volumes.items()
        ),
    ]


def _check_persistent(directory: PurePosixPath, draft: Draft) -> None:
    if not any(directory.is_relative_to(path) for path in draft.options.volumes):
        raise UserMistake(
            f"checkpoint.directory {str(directory)!r} would be lost with its pod; mount a "
            "PersistentVolumeClaim there, like kubernetes.volumes: {"
            + f"{directory}: my-checkpoints"
            + "}"
        )


def _check_working_directory(draft: Draft) -> str:
    """Return the working directory, which must be a path in the container."""
    cwd = draft.job.spec.cwd or ""
    if not cwd.startswith("/"):
        raise UserMistake(
            f"cwd: must be an absolute path in the container on Kubernetes, got {cwd!r}"
        )
    return cwd


@dataclass(frozen=True)
class PodSummary:
    """The state of a job's pods."""

    running: bool = False
    unreachable: tuple[str, ...] = ()
    """The nodes of running pods that do not respond."""
    restarts: int = 0
    exit_status: int | None = None
    """The status of the last failure; 0 if pods have only succeeded."""
    started: float | None = None
    nodes: tuple[str, ...] = ()
    waiting: str = ""
    """Why a pending pod is not running."""

    @classmethod
    def from_pods(cls, pods: Sequence[Manifest]) -> "PodSummary":
        """Summarize the pods that the API lists."""
        running = [pod for pod in pods if _get_phase(pod) in {_RUNNING, _UNKNOWN}]
        unreachable = [pod for pod in running if _is_unreachable(pod)]
        ended = sorted(
            (parse_time(end.get("finishedAt")) or 0.0, int(end.get("exitCode", 0)))
            for pod in pods
            for end in _list_ends(pod)
        )
        failed = [status for _, status in ended if status]
        starts = [start for pod in pods if (start := _get_start(pod)) is not None]
        return cls(
            running=len(running) > len(unreachable),
            unreachable=_list_nodes(unreachable),
            restarts=_count_restarts(pods),
            exit_status=failed[-1] if failed else (0 if ended else None),
            started=min(starts, default=None),
            nodes=_list_nodes(pods),
            waiting=next((reason for pod in pods if (reason := _explain_waiting(pod))), ""),
        )


def _get_phase(pod: Manifest) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _is_unreachable(pod: Manifest) -> bool:
    """Return whether a pod's node does not respond: the cluster then calls the pod not ready, without the node's reason."""
    conditions = pod.get("status", {}).get("conditions", [])
    ready: Manifest = next((each for each in conditions if each.get("type") == "Ready"), {})
    marked = ready.get("status") == "False" and not ready.get("reason")
    return marked or _get_phase(pod) == _UNKNOWN


def _list_nodes(pods: Sequence[Manifest]) -> tuple[str, ...]:
    nodes = [pod["spec"].get("nodeName") for pod in pods]
    return tuple(dict.fromkeys(node for node in nodes if node))


def _count_restarts(pods: Sequence[Manifest]) -> int:
    """Return the most restarts of any node: replaced pods plus container restarts."""
    by_node: dict[str, list[Manifest]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        words = {**metadata.get("labels", {}), **metadata.get("annotations", {})}
        by_node.setdefault("/".join(words.get(key, "") for key in _INDEX_KEYS), []).append(pod)
    return max(
        (
            len(members)
            - 1
            + sum(
                int(container.get("restartCount", 0))
                for pod in members
                for container in _list_containers(pod)
            )
            for members in by_node.values()
        ),
        default=0,
    )


def _list_containers(pod: Manifest) -> list[Manifest]:
    statuses: list[Manifest] = pod.get("status", {}).get("containerStatuses", [])
    return statuses


def _list_ends(pod: Manifest) -> list[Manifest]:
    return [
        container["state"]["terminated"]
        for container in _list_containers(pod)
        if container.get("state", {}).get("terminated")
    ]


def _get_start(pod: Manifest) -> float | None:
    if _get_phase(pod) not in {_RUNNING, _SUCCEEDED, _FAILED}:
        return None
    return parse_time(pod["status"].get("startTime"))


def _explain_waiting(pod: Manifest) -> str:
    if _get_phase(pod) != _PENDING:
        return ""
    for container in _list_containers(pod):
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return _join_reason(waiting)
    for condition in pod["status"].get("conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _join_reason(condition)
    return ""


def _join_reason(state: Manifest) -> str:
    return ": ".join(text for text in (state.get("reason"), state.get("message")) if text)


def parse_time(text: object) -> float | None:
    """Parse a time from the API as seconds since 1970; None if it is missing, invalid, or far in the future."""
    try:
        seconds = datetime.fromisoformat(str(text)).timestamp() if text else -1.0
    except (ValueError, OverflowError):
        return None
    return seconds if 0 <= seconds <= _MAX_TIMESTAMP else None
