"""What GPULab is asked for: a job definition of version 2, and one of version 1 as such.

Keys are those of GPULab's documentation and of its own client (imecilabt-gpulab-common 6.0).
"""

import json
import math
from collections.abc import Mapping
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.specs.targets.testbeds import GpulabTarget

_MB_PER_GB = 1000  # GPULab's documentation: 2000 MB are 2 GB
# It says where it is in a directory that all jobs of the project share, and stays.
_COMMAND = (
    'mkdir -p "$GPUYARD_MEET" && hostname -i > "$GPUYARD_MEET/node$GPUYARD_NODE.new" && '
    'mv "$GPUYARD_MEET/node$GPUYARD_NODE.new" "$GPUYARD_MEET/node$GPUYARD_NODE" && exec sleep infinity'
)


def definition(
    target: GpulabTarget, prefix: str, *, node: int, nodes: int, gpus: int, public_key: str
) -> dict[str, Any]:
    """Of one machine: one job. Several jobs of one GPU meet in the shared storage."""
    resources: dict[str, Any] = {
        "gpus": gpus,
        "cpus": target.cpus,
        "cpuMemoryGb": target.memory_gb,
    }
    if target.gpu_model:
        resources["gpuModel"] = list(target.gpu_model)
    if target.cluster_id is not None:
        resources["clusterId"] = target.cluster_id
    if target.min_cuda_version is not None:
        resources["minCudaVersion"] = target.min_cuda_version
    return {
        "name": f"{prefix}-{node}",
        "description": f"Machine {node} of {nodes} of a cluster that gpuyard deploys",
        "request": {
            "resources": resources,
            "docker": {
                "image": target.image,
                "command": ["/bin/sh", "-c", _COMMAND],
                "environment": {
                    "GPUYARD_NODE": str(node),
                    "GPUYARD_NODES": str(nodes),
                    "GPUYARD_MEET": f"{target.storage}/.gpuyard/{prefix}",
                },
                "storage": [{"hostPath": target.storage, "containerPath": target.storage}],
                "portMappings": [],
            },
            "scheduling": {
                "interactive": False,
                "restartable": False,
                "maxDuration": f"{math.ceil(target.ttl / 60)} minutes",
            },
            "extra": {"sshPubKeys": [public_key]},
        },
    }


def converted(text: str) -> dict[str, Any]:
    """A definition of either version as version 2. Raises where it is neither."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserMistake(f"a job definition is JSON, and this is not: {error}") from None
    if not isinstance(document, dict):
        raise UserMistake("a job definition is a JSON object")
    if isinstance(document.get("request"), dict):
        return document
    old = document.get("jobDefinition")
    if not isinstance(old, dict):
        raise UserMistake("a job definition has `request` (version 2) or `jobDefinition` (1)")
    try:
        return _version_2(old)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserMistake(f"`jobDefinition` can't be understood: {error!r}") from None


def _version_2(old: Mapping[str, Any]) -> dict[str, Any]:
    wanted = old["resources"]
    resources: dict[str, Any] = {
        "gpus": int(wanted["gpus"]),
        "cpus": int(wanted["cpuCores"]),
        "cpuMemoryGb": max(1, math.ceil(float(wanted["systemMemory"]) / _MB_PER_GB)),
    }
    if wanted.get("minCudaVersion") is not None:
        resources["minCudaVersion"] = int(wanted["minCudaVersion"])
    if wanted.get("gpuModel"):
        models = wanted["gpuModel"]
        resources["gpuModel"] = [models] if isinstance(models, str) else list(models)
    if old.get("clusterId") is not None:
        resources["clusterId"] = int(old["clusterId"])
    return {
        "name": str(old["name"]),
        "description": str(old.get("description") or ""),
        "request": {
            "resources": resources,
            "docker": {
                "image": str(old["dockerImage"]),
                "command": old.get("command") or "",
                "environment": dict(old.get("environment") or {}),
                "storage": [_storage(place) for place in old.get("jobDataLocations") or ()],
                "portMappings": list(old.get("portMappings") or ()),
            },
            "scheduling": {"interactive": False},
        },
    }


def _storage(place: Mapping[str, Any]) -> dict[str, str]:
    """Version 1 has one path for the host and the container, unless `sharePath` names the host's."""
    inside = str(place["mountPoint"])
    return {"hostPath": str(place.get("sharePath") or inside), "containerPath": inside}
