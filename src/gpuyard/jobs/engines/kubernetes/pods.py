"""Pods: the template that a job's pods are made from, and what pods that run say of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from posixpath import normpath
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import Draft, Manifest

_SHARED_MEMORY, _SHARED_MEMORY_PATH = "shared-memory", "/dev/shm"  # noqa: S108
_RUNNING, _PENDING, _SUCCEEDED, _FAILED = "Running", "Pending", "Succeeded", "Failed"


def pod_template(
    draft: Draft,
    container: str,
    *,
    restart: str | None = "Never",
    variables: Sequence[Manifest] = (),
    arguments: Sequence[str] = (),
    more: Mapping[str, Any] | None = None,
) -> Manifest:
    """One node's pod. What the job sets itself stands over `variables`."""
    spec: Manifest = {
        "containers": [_container(draft, container, variables, arguments)],
        "volumes": volumes(draft),
        **({} if restart is None else {"restartPolicy": restart}),
        **(more or {}),
    }
    checkpoint = draft.job.spec.checkpoint
    if checkpoint is not None:
        spec["terminationGracePeriodSeconds"] = max(1, round(checkpoint.time))
    if draft.options.node_selector:
        spec["nodeSelector"] = dict(draft.options.node_selector)
    if draft.options.priority_class is not None and draft.options.queue is None:
        spec["priorityClassName"] = draft.options.priority_class
    return {"metadata": {"labels": draft.labels}, "spec": spec}


def _container(
    draft: Draft, name: str, variables: Sequence[Manifest], arguments: Sequence[str]
) -> Manifest:
    if draft.options.image is None:
        raise UserMistake(
            "kubernetes.image is missing: name the container image that has the command, "
            "like pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"
        )
    own = draft.environment()
    taken = {variable["name"] for variable in own}
    made: Manifest = {
        "name": name,
        "image": draft.options.image,
        "command": [*draft.command(), *arguments],
        "env": [*(each for each in variables if each["name"] not in taken), *own],
        "resources": resources(draft),
        "volumeMounts": volume_mounts(draft),
    }
    if draft.job.spec.cwd is not None:
        made["workingDir"] = working_directory(draft)
    checkpoint = draft.job.spec.checkpoint
    if checkpoint is not None and checkpoint.command is not None:
        # a hook's command is not searched for references to variables: nothing is escaped
        made["lifecycle"] = {"preStop": {"exec": {"command": list(checkpoint.command)}}}
    return made


def resources(draft: Draft) -> Manifest:
    """Of one node; what is asked for is also the limit."""
    amounts: Manifest = {draft.options.gpu_resource: draft.gpus_per_node}
    if draft.options.cpus is not None:
        amounts["cpu"] = f"{round(draft.options.cpus * 1000)}m"
    if draft.options.memory is not None:
        amounts["memory"] = str(round(draft.options.memory))
    return {"limits": amounts, "requests": dict(amounts)}


def volumes(draft: Draft) -> list[Manifest]:
    """Claims that exist, and memory for /dev/shm: a container has 64 MB, and data loaders need more."""
    claims = dict.fromkeys(draft.options.volumes.values())
    return [
        {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}},
        *(
            {"name": f"claim-{index}", "persistentVolumeClaim": {"claimName": claim}}
            for index, claim in enumerate(claims)
        ),
    ]


def volume_mounts(draft: Draft) -> list[Manifest]:
    """Raises where checkpoints would be lost with their pod."""
    claims = list(dict.fromkeys(draft.options.volumes.values()))
    checkpoint = draft.job.spec.checkpoint
    if checkpoint is not None and checkpoint.directory is not None:
        _check_kept(PurePosixPath(normpath(checkpoint.directory)), draft)
    return [
        {"name": _SHARED_MEMORY, "mountPath": _SHARED_MEMORY_PATH},
        *(
            {"name": f"claim-{claims.index(claim)}", "mountPath": path}
            for path, claim in draft.options.volumes.items()
        ),
    ]


def _check_kept(directory: PurePosixPath, draft: Draft) -> None:
    if not any(directory.is_relative_to(path) for path in draft.options.volumes):
        raise UserMistake(
            f"checkpoint.directory {str(directory)!r} would be lost with its pod: mount a "
            "PersistentVolumeClaim there, like kubernetes.volumes: {"
            + f"{directory}: my-checkpoints"
            + "}"
        )


def working_directory(draft: Draft) -> str:
    """In the container; one here means nothing there."""
    cwd = draft.job.spec.cwd or ""
    if not cwd.startswith("/"):
        raise UserMistake(
            f"cwd: on Kubernetes expected an absolute path in the container, got {cwd!r}"
        )
    return cwd


@dataclass(frozen=True)
class PodsView:
    """What the pods of one job say of it."""

    running: bool = False
    unknown: bool = False
    restarts: int = 0
    exit_status: int | None = None
    """Of what failed last, else 0 where something ended well."""
    started: float | None = None
    nodes: tuple[str, ...] = ()
    waiting: str = ""
    """Why one that is pending is not running."""

    @classmethod
    def of(cls, pods: Sequence[Manifest]) -> "PodsView":
        """Of the pods that the API lists."""
        phases = [pod.get("status", {}).get("phase") for pod in pods]
        ended = sorted(
            (moment(end.get("finishedAt")) or 0.0, int(end.get("exitCode", 0)))
            for pod in pods
            for end in _ends(pod)
        )
        failed = [status for _, status in ended if status]
        starts = [when for pod in pods if (when := _started(pod)) is not None]
        nodes = [pod.get("spec", {}).get("nodeName") for pod in pods]
        return cls(
            running=_RUNNING in phases,
            unknown="Unknown" in phases and _RUNNING not in phases,
            restarts=_restarts(pods),
            exit_status=failed[-1] if failed else (0 if ended else None),
            started=min(starts, default=None),
            nodes=tuple(dict.fromkeys(node for node in nodes if node)),
            waiting=next((why for pod in pods if (why := _waiting(pod))), ""),
        )


def _restarts(pods: Sequence[Manifest]) -> int:
    """The most of any node: a pod takes the place of one that failed, or its container starts again."""
    by_node: dict[str, list[Manifest]] = {}
    for pod in pods:
        labels = pod["metadata"].get("labels", {})
        keys = ("batch.kubernetes.io/job-completion-index", "training.kubeflow.org/replica-type",
                "training.kubeflow.org/replica-index")  # fmt: skip
        by_node.setdefault("/".join(labels.get(key, "") for key in keys), []).append(pod)
    return max(
        (
            len(own)
            - 1
            + sum(int(each.get("restartCount", 0)) for pod in own for each in _states(pod))
            for own in by_node.values()
        ),
        default=0,
    )


def _states(pod: Manifest) -> list[Manifest]:
    found: list[Manifest] = pod.get("status", {}).get("containerStatuses") or []
    return found


def _ends(pod: Manifest) -> list[Manifest]:
    return [
        each["state"]["terminated"]
        for each in _states(pod)
        if each.get("state", {}).get("terminated")
    ]


def _started(pod: Manifest) -> float | None:
    if pod.get("status", {}).get("phase") not in {_RUNNING, _SUCCEEDED, _FAILED}:
        return None
    return moment(pod["status"].get("startTime"))


def _waiting(pod: Manifest) -> str:
    status = pod.get("status", {})
    if status.get("phase") != _PENDING:
        return ""
    for each in _states(pod):
        waiting = each.get("state", {}).get("waiting") or {}
        if waiting.get("reason") not in {None, "ContainerCreating", "PodInitializing"}:
            return _sentence(waiting)
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return _sentence(condition)
    return ""


def _sentence(said: Manifest) -> str:
    return ": ".join(text for text in (said.get("reason"), said.get("message")) if text)


def moment(text: object) -> float | None:
    """Seconds since 1970 of what the API writes; None for what is not there or is none."""
    try:
        return datetime.fromisoformat(str(text)).timestamp() if text else None
    except ValueError:
        return None
