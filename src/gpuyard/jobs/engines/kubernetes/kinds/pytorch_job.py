"""`PyTorchJob` of Kubeflow's training operator, the version before the Trainer."""

from typing import ClassVar

from gpuyard.jobs.engines.kubernetes.draft import Draft, Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import (
    ObjectKind,
    ObjectState,
    Resource,
    ended_as,
    true_conditions,
    unfinished,
)
from gpuyard.jobs.engines.kubernetes.pods import PodsView, pod_template


class PyTorchJob(ObjectKind):
    """A master and workers; the operator sets torchrun's variables."""

    name: ClassVar[str] = "pytorchjob"
    resource: ClassVar[Resource] = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")
    needs: ClassVar[str] = "Kubeflow's training operator"
    container: ClassVar[str] = "pytorch"  # the operator looks for this name

    def spec(self, draft: Draft) -> Manifest:
        retries = draft.job.spec.retries
        # ExitCode: 1 to 127 is the command's own failure and stays one, 128 to 255 is a signal
        restart = "OnFailure" if retries.failed else "ExitCode"
        replica = {
            "restartPolicy": restart,
            "template": pod_template(draft, self.container, restart=None),
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
                "cleanPodPolicy": "Running",  # those that ended stay, with what they printed
            },
            "pytorchReplicaSpecs": replicas,
        }

    def state_of(self, found: Manifest, pods: PodsView) -> ObjectState:
        conditions = true_conditions(found)
        ended = found.get("status", {}).get("completionTime")
        if "Succeeded" in conditions:
            return ended_as("succeeded", conditions["Succeeded"], ended=ended)
        if "Failed" in conditions:
            return ended_as("failed", conditions["Failed"], ended=ended)
        seen = unfinished(
            found,
            pods,
            suspended=bool(found["spec"].get("runPolicy", {}).get("suspend"))
            or "Suspended" in conditions,
            running="Running" in conditions,
        )
        if seen.state == "queued" and not seen.reason and "Restarting" in conditions:
            return ObjectState("queued", conditions["Restarting"].get("message", ""))
        return seen
