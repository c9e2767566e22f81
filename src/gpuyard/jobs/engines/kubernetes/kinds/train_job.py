"""`TrainJob` of Kubeflow Trainer 2.2 and newer: a runtime that an administrator made says how nodes meet.

The runtime has the pods; a TrainJob says what differs (image, command, variables, nodes, GPUs), and patches volumes,
labels and a node selector into the runtime's template.
"""

from collections.abc import Sequence
from typing import ClassVar

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import Draft, Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import (
    ObjectKind,
    ObjectState,
    Resource,
    ended_as,
    true_conditions,
    unfinished,
)
from gpuyard.jobs.engines.kubernetes.pods import PodsView, resources, volume_mounts, volumes

_MOST_WORDS = 128
_LONGEST_WORD = 65_536
_RESERVED = frozenset(
    {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
)
_NODE = "node"  # what Kubeflow's runtimes call the step that trains, and its container


class TrainJob(ObjectKind):
    """Its nodes are started and restarted together, as its runtime says."""

    name: ClassVar[str] = "trainjob"
    resource: ClassVar[Resource] = Resource(
        "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"
    )
    needs: ClassVar[str] = "Kubeflow Trainer 2.2 or newer"
    container: ClassVar[str] = _NODE

    def spec(self, draft: Draft) -> Manifest:
        environment, command = draft.environment(), draft.command()
        _check(draft, environment, command)
        trainer: Manifest = {
            "command": command,
            "env": environment,
            "numNodes": draft.nodes,
            "numProcPerNode": draft.gpus_per_node,
            "resourcesPerNode": resources(draft),
        }
        if draft.options.image is not None:
            trainer["image"] = draft.options.image
        return {
            **draft.suspended,
            **draft.deadline,
            "runtimeRef": {"name": draft.options.runtime},
            "trainer": trainer,
            "runtimePatches": [_patch(draft)],
        }

    def caveats(self, draft: Draft) -> Sequence[str]:
        runtime = draft.options.runtime
        said = [f"retries: how often it is started again is up to the runtime {runtime}"]
        if draft.job.spec.checkpoint is not None:
            said.append(
                f"checkpoint.time: how long it has to write one is up to the runtime {runtime}"
            )
        return said

    def state_of(self, found: Manifest, pods: PodsView) -> ObjectState:
        conditions = true_conditions(found)
        if "Complete" in conditions:
            return ended_as("succeeded", conditions["Complete"])
        if "Failed" in conditions:
            return ended_as("failed", conditions["Failed"])
        steps = found.get("status", {}).get("jobsStatus") or []
        return unfinished(
            found,
            pods,
            suspended=bool(found["spec"].get("suspend")),
            running=any(step.get("name") == _NODE and step.get("ready") for step in steps),
        )


def _check(draft: Draft, environment: Sequence[Manifest], command: Sequence[str]) -> None:
    """What its API does not take, or has no place for."""
    job = draft.job.spec
    if len(command) > _MOST_WORDS or len(environment) > _MOST_WORDS:
        raise UserMistake(
            f"a TrainJob takes at most {_MOST_WORDS} words and {_MOST_WORDS} variables, got {len(command)} and "
            f"{len(environment)}; kubernetes.kind: job takes more"
        )
    if any(len(word) > _LONGEST_WORD for word in command):
        raise UserMistake(
            f"a TrainJob takes at most {_LONGEST_WORD:,} characters in one word of its command; "
            "kubernetes.kind: job takes more"
        )
    if reserved := sorted(_RESERVED & job.env.keys()):
        raise UserMistake(f"env: a TrainJob sets {', '.join(reserved)} itself")
    if job.cwd is not None:
        raise UserMistake(
            "cwd: a TrainJob runs where its image says; leave it out, or use kubernetes.kind: job"
        )
    if job.checkpoint is not None and job.checkpoint.command is not None:
        raise UserMistake(
            "checkpoint.command: a TrainJob can't run one; use kubernetes.kind: job, or let the command "
            "write a checkpoint on SIGTERM"
        )
    claims = list(draft.options.volumes.values())
    if twice := next((claim for claim in claims if claims.count(claim) > 1), None):
        # its API wants mounts that differ in name, and a pod with two volumes of one claim does not start
        raise UserMistake(
            f"kubernetes.volumes: a TrainJob mounts a claim at one path, and {twice!r} is at several; "
            "kubernetes.kind: job takes that"
        )
    if draft.options.priority_class is not None and draft.options.queue is None:
        raise UserMistake("kubernetes.priority_class: of a TrainJob it is Kueue's; add a queue")


def _patch(draft: Draft) -> Manifest:
    pod: Manifest = {
        "volumes": volumes(draft),
        "containers": [{"name": _NODE, "volumeMounts": volume_mounts(draft)}],
    }
    if draft.options.node_selector:
        pod["nodeSelector"] = dict(draft.options.node_selector)
    template = {"metadata": {"labels": draft.labels}, "spec": pod}
    replicated = {"name": _NODE, "template": {"spec": {"template": template}}}
    return {
        "manager": "gpuyard",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
    }
