"""Kinds that every cluster has: `Job` for training, and a `StatefulSet` for JupyterLab."""

from collections.abc import Sequence
from typing import ClassVar

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import UUID_LABEL, Draft, Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import (
    ObjectKind,
    ObjectState,
    Resource,
    create_service,
    ended_state,
    get_true_conditions,
    unfinished_state,
)
from gpuyard.jobs.engines.kubernetes.pods import PodSummary, create_pod_template
from gpuyard.jobs.engines.kubernetes.server import (
    INDEXED_JOBS,
    POD_FAILURE_POLICY,
    POD_REPLACEMENT_POLICY,
    SUSPENDED_JOBS,
)

_RENDEZVOUS_PORT = 29500
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"

NOTEBOOK_PORT = 8888
TOKEN_KEY = "token"  # noqa: S105
_NOTEBOOK_OPTIONS = (
    "--ServerApp.ip=0.0.0.0",  # the pod's address; the Service is reachable only inside the cluster
    f"--ServerApp.port={NOTEBOOK_PORT}",
    "--ServerApp.port_retries=0",
    "--ServerApp.open_browser=False",
    "--ServerApp.allow_root=True",  # the image decides which user it runs as
)
_TOKEN_VARIABLE = "JUPYTER_TOKEN"  # noqa: S105


class BatchJob(ObjectKind):
    """A `Job` with one pod per node; a lost pod is replaced.

    The pods of several nodes find each other through a headless Service. torchrun also reads its options from `PET_…`
    variables, which Kubeflow's operators set too, so the same command runs on any number of nodes and as any kind.
    """

    name: ClassVar[str] = "job"
    resource: ClassVar[Resource] = Resource("batch", "v1", "jobs", "Job")
    container: ClassVar[str] = "job"

    def spec(self, draft: Draft) -> Manifest:
        multi_node = draft.nodes > 1
        retries = draft.job.spec.retries
        if multi_node:
            remedy = "use one node, or a kind of Kubeflow"
            draft.require(INDEXED_JOBS, "nodes", remedy)
        if draft.suspended:
            draft.require(SUSPENDED_JOBS, "kubernetes.queue", "without a queue, it starts at once")
        spec: Manifest = {
            **draft.suspended,
            **draft.deadline,
            # every failed pod counts, and if one node is lost, the others fail too
            "backoffLimit": (retries.lost + retries.failed) * draft.nodes,
            "completions": draft.nodes,
            "parallelism": draft.nodes,
            **({"completionMode": "Indexed"} if multi_node else {}),
            "template": create_pod_template(
                draft, self.container, variables=_rendezvous_variables(draft)
            ),
        }
        pod = spec["template"]["spec"]
        if multi_node:
            pod["subdomain"] = draft.name
        if draft.server.lacks(POD_REPLACEMENT_POLICY):
            pod["tolerations"] = _stay_on_silent_nodes()
        else:
            # otherwise a pod on a silent node, where it may still run, would be replaced after 5 minutes
            spec["podReplacementPolicy"] = "Failed"
        if not retries.failed and draft.server.lacks(POD_FAILURE_POLICY):
            spec["backoffLimit"] = 0
        elif not retries.failed:
            spec["podFailurePolicy"] = _retry_only_lost_pods(self.container)
        return spec

    def companions(self, draft: Draft) -> Sequence[Manifest]:
        """Return the headless Service with which the pods find each other, even before they are ready."""
        if draft.nodes == 1:
            return ()
        port = {"name": "rendezvous", "port": _RENDEZVOUS_PORT, "targetPort": _RENDEZVOUS_PORT}
        spec = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": draft.labels,
            "ports": [port],
        }
        return (create_service(draft, spec),)

    def caveats(self, draft: Draft) -> Sequence[str]:
        retries, server = draft.job.spec.retries, draft.server
        caveats = []
        if retries.lost and not retries.failed and server.lacks(POD_FAILURE_POLICY):
            caveats.append(
                f"retries.lost: the cluster runs Kubernetes {server.text}, which has no {POD_FAILURE_POLICY} and cannot tell "
                "a lost pod from a failing command: neither is restarted; to restart both, use retries: {failed: N}"
            )
        elif draft.nodes > 1 and retries.lost and not retries.failed:
            caveats.append(
                "retries: if one of several nodes is lost, the others fail, and so does this Job; to restart it, use "
                "retries: {failed: N} or kind: trainjob"
            )
        if server.lacks(POD_REPLACEMENT_POLICY):
            caveats.append(
                f"a silent node: the cluster runs Kubernetes {server.text}, which has no {POD_REPLACEMENT_POLICY}: the job "
                "waits until its node responds again, or until somebody deletes the node's object; so it never runs twice"
            )
        return caveats

    def get_state(self, manifest: Manifest, pods: PodSummary) -> ObjectState:
        conditions = get_true_conditions(manifest)
        status = manifest.get("status", {})
        if "Complete" in conditions:
            ended = status.get("completionTime")
            return ended_state("succeeded", conditions["Complete"], ended=ended)
        if "Failed" in conditions:
            return ended_state("failed", conditions["Failed"])
        ending = not conditions.keys().isdisjoint({"SuccessCriteriaMet", "FailureTarget"})
        return unfinished_state(
            manifest,
            pods,
            suspended=bool(manifest["spec"].get("suspend")),
            running=ending or bool(status.get("ready")),
        )


def _rendezvous_variables(draft: Draft) -> list[Manifest]:
    """Return torchrun's options as variables; a single node needs no rendezvous."""
    per_node = {"name": "PET_NPROC_PER_NODE", "value": str(draft.gpus_per_node)}
    if draft.nodes == 1:
        return [per_node]
    return [
        {"name": "PET_NNODES", "value": str(draft.nodes)},
        per_node,
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        {"name": "PET_MASTER_ADDR", "value": f"{draft.name}-0.{draft.name}"},
        {"name": "PET_MASTER_PORT", "value": str(_RENDEZVOUS_PORT)},
    ]


def _stay_on_silent_nodes() -> list[Manifest]:
    """Return tolerations that keep a pod on a node that does not respond, where its command may still run."""
    return [
        {"key": f"node.kubernetes.io/{state}", "operator": "Exists", "effect": "NoExecute"}
        for state in ("unreachable", "not-ready")
    ]


def _retry_only_lost_pods(container: str) -> Manifest:
    """Fail the Job if the command fails, which it would do again; count a lost pod as a retry."""
    lost = {"type": "DisruptionTarget", "status": "True"}
    failed = {"containerName": container, "operator": "NotIn", "values": [0]}
    return {
        "rules": [
            {"action": "Count", "onPodConditions": [lost]},
            {"action": "FailJob", "onExitCodes": failed},
        ]
    }


class NotebookStatefulSet(ObjectKind):
    """JupyterLab that runs until it is canceled and is reachable only inside the cluster.

    A StatefulSet never has two pods of one name, which would share GPUs and files. The Service has a cluster IP, but no
    node port or external address. The token is in a Secret that is created on submission; it never appears in a manifest,
    log, or message.
    """

    name: ClassVar[str] = "notebook"
    resource: ClassVar[Resource] = Resource("apps", "v1", "statefulsets", "StatefulSet")
    container: ClassVar[str] = "jupyterlab"

    def spec(self, draft: Draft) -> Manifest:
        if draft.nodes > 1:
            raise UserMistake(f"nodes: a notebook runs on one node, got {draft.nodes}")
        if draft.job.spec.time_limit is not None:
            raise UserMistake("time_limit: a notebook on Kubernetes runs until it is canceled")
        _reject_own_token(draft)
        token = {"secretKeyRef": {"name": draft.name, "key": TOKEN_KEY}}
        template = create_pod_template(
            draft,
            self.container,
            restart="Always",
            variables=[{"name": _TOKEN_VARIABLE, "valueFrom": token}],
            arguments=_NOTEBOOK_OPTIONS,
        )
        container = template["spec"]["containers"][0]
        container["ports"] = [{"name": "http", "containerPort": NOTEBOOK_PORT}]
        container["readinessProbe"] = {"tcpSocket": {"port": NOTEBOOK_PORT}}
        return {
            "replicas": 1,
            "serviceName": draft.name,
            "selector": {"matchLabels": {UUID_LABEL: draft.job.uuid}},
            "template": template,
        }

    def companions(self, draft: Draft) -> Sequence[Manifest]:
        spec = {
            "type": "ClusterIP",
            "selector": {UUID_LABEL: draft.job.uuid},
            "ports": [{"name": "http", "port": NOTEBOOK_PORT, "targetPort": NOTEBOOK_PORT}],
        }
        return (create_service(draft, spec),)

    def caveats(self, draft: Draft) -> Sequence[str]:
        return (
            f"`gpuyard submit` also creates the Secret {draft.name} with a random {TOKEN_KEY}; to apply this by hand, "
            "create it first",
        )

    def get_state(self, manifest: Manifest, pods: PodSummary) -> ObjectState:
        ready = bool(manifest.get("status", {}).get("readyReplicas"))
        return unfinished_state(manifest, pods, suspended=False, running=ready)


def _reject_own_token(draft: Draft) -> None:
    """Reject a token in the job file: anyone who may read the objects could read it."""
    job = draft.job.spec
    options = [word.lower() for word in job.command if word.startswith("--")]
    in_command = any("token" in option or "password" in option for option in options)
    if in_command or _TOKEN_VARIABLE in job.env:
        key = "command" if in_command else "env"
        raise UserMistake(f"{key}: gpuyard creates the notebook's token; leave yours out")
