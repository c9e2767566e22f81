"""GPULab job definitions: build one of version 2, and convert version 1 to version 2.

Keys follow GPULab's documentation and its own client (imecilabt-gpulab-common 6.0).
"""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gpuyard.errors import UserMistake

if (
    TYPE_CHECKING
):  # Terraform starts its provider several times per command, and pydantic is slow to import
    from gpuyard.specs.targets.testbeds import GpulabTarget

_MB_PER_GB = 1000  # GPULab's documentation: 2000 MB are 2 GB
# The job writes its address to a directory that all jobs of the project share, then waits for ssh.
_COMMAND = (
    'mkdir -p "$GPUYARD_RENDEZVOUS" && hostname -i > "$GPUYARD_RENDEZVOUS/node$GPUYARD_NODE.new" && '
    'mv "$GPUYARD_RENDEZVOUS/node$GPUYARD_NODE.new" "$GPUYARD_RENDEZVOUS/node$GPUYARD_NODE" && exec sleep infinity'
)


def build_definition(
    target: "GpulabTarget", prefix: str, *, node: int, nodes: int, gpus: int, public_key: str
) -> dict[str, Any]:
    """Return the definition of the job that acts as one machine of the cluster."""
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
                    "GPUYARD_RENDEZVOUS": f"{target.storage}/.gpuyard/{prefix}",
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


def convert_definition(text: str) -> dict[str, Any]:
    """Return a definition of either version as version 2. Raises if it is neither."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserMistake(f"a job definition must be JSON: {error}") from None
    if not isinstance(document, dict):
        raise UserMistake("a job definition must be a JSON object")
    if isinstance(document.get("request"), dict):
        return document
    old = document.get("jobDefinition")
    if not isinstance(old, dict):
        raise UserMistake(
            "a job definition must have `request` (version 2) or `jobDefinition` (version 1)"
        )
    try:
        return _upgrade(old)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserMistake(f"cannot convert `jobDefinition`: {error!r}") from None


def _upgrade(old: Mapping[str, Any]) -> dict[str, Any]:
    old_resources = old["resources"]
    resources: dict[str, Any] = {
        "gpus": int(old_resources["gpus"]),
        "cpus": int(old_resources["cpuCores"]),
        "cpuMemoryGb": max(1, math.ceil(float(old_resources["systemMemory"]) / _MB_PER_GB)),
    }
    if old_resources.get("minCudaVersion") is not None:
        resources["minCudaVersion"] = int(old_resources["minCudaVersion"])
    if old_resources.get("gpuModel"):
        models = old_resources["gpuModel"]
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
                "storage": [_upgrade_mount(mount) for mount in old.get("jobDataLocations") or ()],
                "portMappings": list(old.get("portMappings") or ()),
            },
            "scheduling": {"interactive": False},
        },
    }


def _upgrade_mount(mount: Mapping[str, Any]) -> dict[str, str]:
    """Version 1 uses one path for host and container, unless `sharePath` names the host's."""
    container_path = str(mount["mountPoint"])
    return {
        "hostPath": str(mount.get("sharePath") or container_path),
        "containerPath": container_path,
    }
