"""What a kind of object answers: which manifests make it of a job, and how far one that exists is."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import QUEUE_LABEL, Draft, Manifest
from gpuyard.jobs.engines.kubernetes.pods import PodsView, moment
from gpuyard.jobs.job import JobState


@dataclass(frozen=True)
class Resource:
    """Where the API has objects of one kind; the core ones have no group."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


SERVICES = Resource("", "v1", "services", "Service")
SECRETS = Resource("", "v1", "secrets", "Secret")


@dataclass(frozen=True)
class ObjectState:
    """How far an object is, and why."""

    state: JobState
    reason: str = ""
    ended: float | None = None


class ObjectKind(ABC):
    """One kind of object that can be a job."""

    name: ClassVar[str]
    resource: ClassVar[Resource]
    needs: ClassVar[str] = ""
    """What has to be installed in the cluster, where Kubernetes alone does not know it."""
    container: ClassVar[str]
    """Whose output is the job's."""

    @abstractmethod
    def spec(self, draft: Draft) -> Manifest:
        """Of the object that is the job. Raises where the kind can't do what the job asks for."""

    def companions(self, draft: Draft) -> Sequence[Manifest]:  # noqa: ARG002
        """Objects that it needs, and that go when it goes."""
        return ()

    def caveats(self, draft: Draft) -> Sequence[str]:  # noqa: ARG002
        """What the job asks for and this kind does otherwise, in sentences."""
        return ()

    def manifests(self, draft: Draft) -> tuple[Manifest, ...]:
        """The job's own object first."""
        if draft.job.spec.after:
            raise UserMistake(
                "after: a job on Kubernetes can't wait for others; submit it when they have succeeded"
            )
        checkpoint = draft.job.spec.checkpoint
        if checkpoint is not None and checkpoint.signal != "SIGTERM":
            raise UserMistake(
                f"checkpoint.signal: Kubernetes stops what runs with SIGTERM, not {checkpoint.signal}"
            )
        own = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": draft.metadata(),
            "spec": self.spec(draft),
        }
        return (own, *self.companions(draft))

    @abstractmethod
    def state_of(self, found: Manifest, pods: PodsView) -> ObjectState:
        """Of an object that the API gave."""


def true_conditions(found: Manifest) -> dict[str, Manifest]:
    """By type."""
    conditions = found.get("status", {}).get("conditions") or []
    return {each["type"]: each for each in conditions if each.get("status") == "True"}


def ended_as(state: JobState, condition: Manifest, *, ended: str | None = None) -> ObjectState:
    """A state that stays, with what the controller says of it."""
    said = [condition.get("reason"), condition.get("message")]
    reason = "" if state == "succeeded" else ": ".join(text for text in said if text)
    return ObjectState(state, reason, moment(ended or condition.get("lastTransitionTime")))


def unfinished(found: Manifest, pods: PodsView, *, suspended: bool, running: bool) -> ObjectState:
    """Queued, running, or not to be known, of what has not ended."""
    if found["metadata"].get("deletionTimestamp"):
        return ObjectState("running", "it is being deleted")
    if suspended:
        queue = found["metadata"].get("labels", {}).get(QUEUE_LABEL)
        return ObjectState("queued", f"waits in Kueue's queue {queue}" if queue else "is suspended")
    if pods.unknown:
        return ObjectState("unknown", "the node that it runs on does not answer")
    if running or pods.running:
        return ObjectState("running")
    return ObjectState("queued", pods.waiting)


def headless_service(draft: Draft, port: int) -> Manifest:
    """By which the pods of a job find each other by name, also before they are ready."""
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": draft.name, "namespace": draft.namespace, "labels": draft.labels},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": draft.labels,
            "ports": [{"name": "rendezvous", "port": port, "targetPort": port}],
        },
    }
