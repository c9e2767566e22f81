"""`Job`, which every cluster knows. On several nodes its pods find each other by a headless Service.

torchrun reads its options from variables `PET_…` too, as Kubeflow's operators set them, so the same command
runs on one node and on several, and as any kind.
"""

from collections.abc import Sequence
from typing import ClassVar

from gpuyard.jobs.engines.kubernetes.draft import Draft, Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import (
    ObjectKind,
    ObjectState,
    Resource,
    ended_as,
    headless_service,
    true_conditions,
    unfinished,
)
from gpuyard.jobs.engines.kubernetes.pods import PodsView, pod_template

_PORT = 29500
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


class BatchJob(ObjectKind):
    """A node is a pod, and a pod that is lost is replaced."""

    name: ClassVar[str] = "job"
    resource: ClassVar[Resource] = Resource("batch", "v1", "jobs", "Job")
    container: ClassVar[str] = "job"

    def spec(self, draft: Draft) -> Manifest:
        several = draft.nodes > 1
        retries = draft.job.spec.retries
        spec: Manifest = {
            **draft.suspended,
            **draft.deadline,
            # every node that ends counts, and when one is lost the others end too
            "backoffLimit": (retries.lost + retries.failed) * draft.nodes,
            "completions": draft.nodes,
            "parallelism": draft.nodes,
            "completionMode": "Indexed" if several else "NonIndexed",
            "template": pod_template(
                draft,
                self.container,
                variables=_rendezvous(draft),
                more={"subdomain": draft.name} if several else None,
            ),
        }
        if not retries.failed:
            spec["podFailurePolicy"] = _only_lost_pods(self.container)
        return spec

    def companions(self, draft: Draft) -> Sequence[Manifest]:
        return (headless_service(draft, _PORT),) if draft.nodes > 1 else ()

    def caveats(self, draft: Draft) -> Sequence[str]:
        if draft.nodes > 1 and draft.job.spec.retries.lost and not draft.job.spec.retries.failed:
            return (
                "retries: when one of several nodes is lost the others fail, and this Job with them; it is started "
                "again with retries: {failed: N}, or as a trainjob",
            )
        return ()

    def state_of(self, found: Manifest, pods: PodsView) -> ObjectState:
        conditions = true_conditions(found)
        status = found.get("status", {})
        if "Complete" in conditions:
            return ended_as("succeeded", conditions["Complete"], ended=status.get("completionTime"))
        if "Failed" in conditions:
            return ended_as("failed", conditions["Failed"])
        ending = not conditions.keys().isdisjoint({"SuccessCriteriaMet", "FailureTarget"})
        return unfinished(
            found,
            pods,
            suspended=bool(found["spec"].get("suspend")),
            running=ending or bool(status.get("ready")),
        )


def _rendezvous(draft: Draft) -> list[Manifest]:
    """The options of torchrun that say who is who; one node needs no rendezvous."""
    per_node = {"name": "PET_NPROC_PER_NODE", "value": str(draft.gpus_per_node)}
    if draft.nodes == 1:
        return [per_node]
    return [
        {"name": "PET_NNODES", "value": str(draft.nodes)},
        per_node,
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        {"name": "PET_MASTER_ADDR", "value": f"{draft.name}-0.{draft.name}"},
        {"name": "PET_MASTER_PORT", "value": str(_PORT)},
    ]


def _only_lost_pods(container: str) -> Manifest:
    """A command that fails would fail again; a node that is lost is not its fault, and counts as a retry."""
    lost = {"type": "DisruptionTarget", "status": "True"}
    failed = {"containerName": container, "operator": "NotIn", "values": [0]}
    return {
        "rules": [
            {"action": "Count", "onPodConditions": [lost]},
            {"action": "FailJob", "onExitCodes": failed},
        ]
    }
