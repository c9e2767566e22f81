"""JupyterLab that goes on until it is cancelled: a StatefulSet of one, reached inside the cluster only.

The Service has a cluster IP, and no port of a node or address outside. The token is in a Secret that is made when
it is submitted; no manifest, log or sentence has it.
"""

from collections.abc import Sequence
from typing import ClassVar

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import UUID_LABEL, Draft, Manifest
from gpuyard.jobs.engines.kubernetes.kinds.base import (
    SERVICES,
    ObjectKind,
    ObjectState,
    Resource,
    unfinished,
)
from gpuyard.jobs.engines.kubernetes.pods import PodsView, pod_template

PORT = 8888
TOKEN_KEY = "token"  # noqa: S105
_OPTIONS = (
    "--ServerApp.ip=0.0.0.0",  # of its pod: the Service's address is inside the cluster
    f"--ServerApp.port={PORT}",
    "--ServerApp.port_retries=0",
    "--ServerApp.open_browser=False",
    "--ServerApp.allow_root=True",  # who the image's user is is the image's choice
)
_TOKEN_VARIABLE = "JUPYTER_TOKEN"  # noqa: S105


class NotebookStatefulSet(ObjectKind):
    """Two at once would share GPUs and files: a StatefulSet never has two pods of one name."""

    name: ClassVar[str] = "notebook"
    resource: ClassVar[Resource] = Resource("apps", "v1", "statefulsets", "StatefulSet")
    container: ClassVar[str] = "jupyterlab"

    def spec(self, draft: Draft) -> Manifest:
        job = draft.job.spec
        if draft.nodes > 1:
            raise UserMistake(f"nodes: a notebook runs on one, got {draft.nodes}")
        if job.time_limit is not None:
            raise UserMistake("time_limit: a notebook on Kubernetes runs until it is cancelled")
        _check_token(draft)
        token = {"secretKeyRef": {"name": draft.name, "key": TOKEN_KEY}}
        template = pod_template(
            draft,
            self.container,
            restart="Always",
            variables=[{"name": _TOKEN_VARIABLE, "valueFrom": token}],
            arguments=_OPTIONS,
        )
        container = template["spec"]["containers"][0]
        container["ports"] = [{"name": "http", "containerPort": PORT}]
        container["readinessProbe"] = {"tcpSocket": {"port": PORT}}
        return {
            "replicas": 1,
            "serviceName": draft.name,
            "selector": {"matchLabels": {UUID_LABEL: draft.job.uuid}},
            "template": template,
        }

    def companions(self, draft: Draft) -> Sequence[Manifest]:
        service = {
            "apiVersion": SERVICES.api_version,
            "kind": SERVICES.kind,
            "metadata": {"name": draft.name, "namespace": draft.namespace, "labels": draft.labels},
            "spec": {
                "type": "ClusterIP",
                "selector": {UUID_LABEL: draft.job.uuid},
                "ports": [{"name": "http", "port": PORT, "targetPort": PORT}],
            },
        }
        return (service,)

    def caveats(self, draft: Draft) -> Sequence[str]:
        return (
            f"`gpuyard submit` also makes the Secret {draft.name} with a random {TOKEN_KEY}; to apply this by hand, "
            "make it first",
        )

    def state_of(self, found: Manifest, pods: PodsView) -> ObjectState:
        ready = bool(found.get("status", {}).get("readyReplicas"))
        return unfinished(found, pods, suspended=False, running=ready)


def _check_token(draft: Draft) -> None:
    """A job file that sets its own token would show it to all who may read objects, or have none."""
    job = draft.job.spec
    words = [word for word in job.command if word.startswith("--")]
    own = [word for word in words if "token" in word.lower() or "password" in word.lower()]
    if own or _TOKEN_VARIABLE in job.env:
        what = "env" if not own else "command"
        raise UserMistake(f"{what}: a notebook's token is made by gpuyard; leave yours out")
