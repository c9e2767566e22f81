"""Check objects from a server before anything reads them: a proxy or another service may send anything as an object."""

import re
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.jobs.engines.kubernetes.draft import UUID_LABEL, Manifest

_NAME = re.compile(r"[a-z0-9](?:[-.a-z0-9]{0,251}[a-z0-9])?")
_TEXTS = {"*": str}
_CONDITION = {"type": str, "status": str, "reason": str, "message": str, "lastTransitionTime": str}
_WAITING = {"reason": str, "message": str}
_CONTAINER = {
    "name": str,
    "restartCount": int,
    "state": {
        "running": {},
        "terminated": {"exitCode": int, "finishedAt": str},
        "waiting": _WAITING,
    },
}
_SHAPE = {
    "metadata": {
        "name": str,
        "uid": str,
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "creationTimestamp": str,
        "deletionTimestamp": str,
    },
    "spec": {"suspend": bool, "runPolicy": {"suspend": bool}, "nodeName": str},
    "status": {
        "phase": str,
        "startTime": str,
        "completionTime": str,
        "ready": int,
        "readyReplicas": int,
        "conditions": [_CONDITION],
        "containerStatuses": [_CONTAINER],
        "jobsStatus": [{"name": str, "ready": int}],
    },
}
"""The type of every value that gpuyard reads; other keys may have any value. "*" is every key."""
_MAX_INTEGER = 2**31
_TYPE_NAMES = {str: "a text", int: "an integer", bool: "true or false"}


class MalformedObject(GpuyardError):
    """The server sent an object that is not valid for Kubernetes."""

    def __init__(self, kind: str, document: object, problem: str, requested: str = "") -> None:
        metadata = document.get("metadata") if isinstance(document, dict) else None
        metadata = metadata if isinstance(metadata, dict) else {}
        name, labels = metadata.get("name"), metadata.get("labels")
        self.name = name if isinstance(name, str) and _NAME.fullmatch(name) else requested
        """The object's name; empty if it has no valid one."""
        job_id = labels.get(UUID_LABEL) if isinstance(labels, dict) else None
        self.job_id = job_id if isinstance(job_id, str) else ""
        which = f"the {kind} {self.name}" if self.name else f"a {kind} without a valid name"
        super().__init__(f"the cluster's answer is not valid for Kubernetes: {which}: {problem}")


def check_object(kind: str, document: object, name: str = "") -> Manifest:
    """Return an object without the null values that gpuyard would read, or raise MalformedObject."""
    try:
        manifest: Manifest = _check(document, _SHAPE, "it")
        if not _NAME.fullmatch(manifest.get("metadata", {}).get("name", "")):
            raise ValueError("metadata.name must be a name")
    except ValueError as problem:
        raise MalformedObject(kind, document, str(problem), name) from None
    return {"spec": {}, **manifest}


def check_objects(kind: str, documents: object) -> tuple[list[Manifest], list[MalformedObject]]:
    """Return the valid objects of a list, and an error for each other one."""
    objects, errors = [], []
    for document in documents if isinstance(documents, list) else []:
        try:
            objects.append(check_object(kind, document))
        except MalformedObject as error:
            errors.append(error)
    return objects, errors


def _check(value: Any, shape: Any, path: str) -> Any:
    """Return the value without null values, which Kubernetes treats as absent; raise ValueError if its type is wrong."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            raise ValueError(f"{path} must be a mapping")
        below = "" if path == "it" else f"{path}."
        return {
            key: _check(item, inner, f"{below}{key}") if inner is not None else item
            for key, item in value.items()
            if (inner := shape.get(key, shape.get("*"))) is None or item is not None
        }
    if isinstance(shape, list):
        if not isinstance(value, list):
            raise ValueError(f"{path} must be a list")
        return [_check(item, shape[0], f"{path}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, shape) or (shape is int and isinstance(value, bool)):
        raise ValueError(f"{path} must be {_TYPE_NAMES[shape]}")
    if shape is int and abs(value) > _MAX_INTEGER:
        raise ValueError(f"{path} must have 32 bits")
    return value
