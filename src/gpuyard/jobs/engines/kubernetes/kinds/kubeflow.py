"""Kubeflow's kinds: `TrainJob` of Trainer 2.2 and newer, and `PyTorchJob` of the older training operator."""

from collections.abc import Sequence
from typing import ClassVar

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import Draft, Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import (
    ObjectKind,
    ObjectState,
    Resource,
    ended_state,
    get_true_conditions,
    unfinished_state,
)
from gpuyard.jobs.engines.kubernetes.pods import (
    PodSummary,
    create_pod_template,
    list_resources,
    list_volume_mounts,
    list_volumes,
)

_MAX_WORDS = 128
_MAX_WORD_LENGTH = 65_536
_RESERVED = frozenset(
    {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
)
_NODE = "node"  # the name of the training step and its container in Kubeflow's runtimes


class TrainJob(ObjectKind):
    """A job whose nodes start and restart together, as a runtime of the cluster's administrator defines.

    The runtime has the pods and the rendezvous. The TrainJob sets the image, command, variables, nodes, and GPUs, and
    patches volumes, labels, and a node selector into the runtime's template.
    """

    name: ClassVar[str] = "trainjob"
    resource: ClassVar[Resource] = Resource(
        "trainer.kubeflow.org", "v1alpha1", "trainjobs", "TrainJob"
    )
    needs: ClassVar[str] = "Kubeflow Trainer 2.2 or newer"
    container: ClassVar[str] = _NODE

    def spec(self, draft: Draft) -> Manifest:
        environment, command = draft.environment(), draft.command()
        _check_limits(draft, environment, command)
        trainer: Manifest = {
            "command": command,
            "env": environment,
            "numNodes": draft.nodes,
            "numProcPerNode": draft.gpus_per_node,
            "resourcesPerNode": list_resources(draft),
        }
        if draft.options.image is not None:
            trainer["image"] = draft.options.image
        return {
            **draft.suspended,
            **draft.deadline,
            "runtimeRef": {"name": draft.options.runtime},
            "trainer": trainer,
            "runtimePatches": [_create_patch(draft)],
        }

    def caveats(self, draft: Draft) -> Sequence[str]:
        runtime = draft.options.runtime
        caveats = [f"retries: the runtime {runtime} decides how often it is restarted"]
        if draft.job.spec.checkpoint is not None:
            caveats.append(
                f"checkpoint.time: the runtime {runtime} decides how long it may take to write a checkpoint"
            )
        return caveats

    def get_state(self, manifest: Manifest, pods: PodSummary) -> ObjectState:
        conditions = get_true_conditions(manifest)
        if "Complete" in conditions:
            return ended_state("succeeded", conditions["Complete"])
        if "Failed" in conditions:
            return ended_state("failed", conditions["Failed"])
        steps = manifest.get("status", {}).get("jobsStatus", [])
        return unfinished_state(
            manifest,
            pods,
            suspended=bool(manifest["spec"].get("suspend")),
            running=any(step.get("name") == _NODE and step.get("ready") for step in steps),
        )


def _check_limits(draft: Draft, environment: Sequence[Manifest], command: Sequence[str]) -> None:
    """Raise UserMistake for settings that the TrainJob API does not accept or support."""
    job = draft.job.spec
    if len(command) > _MAX_WORDS or len(environment) > _MAX_WORDS:
        raise UserMistake(
            f"a TrainJob accepts at most {_MAX_WORDS} words and {_MAX_WORDS} variables, got {len(command)} and "
            f"{len(environment)}; kubernetes.kind: job accepts more"
        )
    if any(len(word) > _MAX_WORD_LENGTH for word in command):
        raise UserMistake(
            f"a TrainJob accepts at most {_MAX_WORD_LENGTH:,} characters in one word of its command; "
            "kubernetes.kind: job accepts more"
        )
    if reserved := sorted(_RESERVED & job.env.keys()):
        raise UserMistake(f"env: a TrainJob sets {', '.join(reserved)} itself; leave them out")
    if job.cwd is not None:
        raise UserMistake(
            "cwd: a TrainJob runs in its image's directory; leave it out, or use kubernetes.kind: job"
        )
    if job.checkpoint is not None and job.checkpoint.command is not None:
        raise UserMistake(
            "checkpoint.command: a TrainJob cannot run one; use kubernetes.kind: job, or let the command "
            "write a checkpoint on SIGTERM"
        )
    claims = list(draft.options.volumes.values())
    if repeated := next((claim for claim in claims if claims.count(claim) > 1), None):
        # its API requires distinct mount names, and a pod with two volumes of one claim does not start
        raise UserMistake(
            f"kubernetes.volumes: a TrainJob can mount a claim at one path only, but {repeated!r} has several; "
            "kubernetes.kind: job supports that"
        )
    if draft.options.priority_class is not None and draft.options.queue is None:
        raise UserMistake(
            "kubernetes.priority_class: a TrainJob's priority class is Kueue's; add kubernetes.queue"
        )


def _create_patch(draft: Draft) -> Manifest:
    pod: Manifest = {
        "volumes": list_volumes(draft),
        "containers": [{"name": _NODE, "volumeMounts": list_volume_mounts(draft)}],
    }
    if draft.options.node_selector:
        pod["nodeSelector"] = dict(draft.options.node_selector)
    template = {"metadata": {"labels": draft.labels}, "spec": pod}
    replicated = {"name": _NODE, "template": {"spec": {"template": template}}}
    return {
        "manager": "gpuyard",
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
    }


class PyTorchJob(ObjectKind):
    """A master and workers; the operator sets torchrun's variables."""

    name: ClassVar[str] = "pytorchjob"
    resource: ClassVar[Resource] = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
    needs: ClassVar[str] = "Kubeflow's training operator"
    container: ClassVar[str] = "pytorch"  # the operator looks for this name

    def spec(self, draft: Draft) -> Manifest:
        retries = draft.job.spec.retries
        # ExitCode: statuses 1 to 127 are the command's own failure and final, 128 to 255 are signals
        restart = "OnFailure" if retries.failed else "ExitCode"
        replica = {
            "restartPolicy": restart,
            "template": create_pod_template(draft, self.container, restart=None),
        }
        replicas: Manifest = {"Master": {"replicas": 1, **replica}}
        if draft.nodes > 1:
            replicas["Worker"] = {"replicas": draft.nodes - 1, **replica}
        return {
            "nprocPerNode": str(draft.gpus_per_node),
            "runPolicy": {
                **draft.suspended,
                **draft.deadline,
                "backoffLimit": retries.lost + retries.failed,
                "cleanPodPolicy": "Running",  # pods that have ended stay, with their logs
            },
            "pytorchReplicaSpecs": replicas,
        }

    def get_state(self, manifest: Manifest, pods: PodSummary) -> ObjectState:
        conditions = get_true_conditions(manifest)
        ended = manifest.get("status", {}).get("completionTime")
        if "Succeeded" in conditions:
            return ended_state("succeeded", conditions["Succeeded"], ended=ended)
        if "Failed" in conditions:
            return ended_state("failed", conditions["Failed"], ended=ended)
        policy = manifest["spec"].get("runPolicy", {})
        state = unfinished_state(
            manifest,
            pods,
            suspended=bool(policy.get("suspend")) or "Suspended" in conditions,
            running="Running" in conditions,
        )
        if state.state == "queued" and not state.reason and "Restarting" in conditions:
            return ObjectState("queued", conditions["Restarting"].get("message", ""))
        return state
