"""The interface of object kinds: create manifests from a job, and read the state of an existing object."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import QUEUE_LABEL, Draft, Manifest
from gpuyard.jobs.engines.kubernetes.pods import PodSummary, parse_time
from gpuyard.jobs.job import JobState


@dataclass(frozen=True)
class Resource:
    """An API resource; those of the core API have no group."""

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
    """The state of an object and the reason for it."""

    state: JobState
    reason: str = ""
    ended: float | None = None
    canceling: bool = False


class ObjectKind(ABC):
    """A kind of object that a job can be submitted as."""

    name: ClassVar[str]
    resource: ClassVar[Resource]
    needs: ClassVar[str] = ""
    """The software that must be installed in the cluster; empty for kinds of Kubernetes itself."""
    container: ClassVar[str]
    """The container whose output is the job's."""

    @abstractmethod
    def spec(self, draft: Draft) -> Manifest:
        """Return the object's spec; raise UserMistake if this kind cannot run the job."""

    def companions(self, draft: Draft) -> Sequence[Manifest]:  # noqa: ARG002
        """Return further objects that the job needs and that are deleted with it."""
        return ()

    def caveats(self, draft: Draft) -> Sequence[str]:  # noqa: ARG002
        """Return sentences about settings that this kind treats differently."""
        return ()

    def manifests(self, draft: Draft) -> tuple[Manifest, ...]:
        """Return all manifests, the job's own object first."""
        if draft.job.spec.after:
            raise UserMistake(
                "after: a Kubernetes job cannot wait for other jobs; submit it when they have succeeded"
            )
        checkpoint = draft.job.spec.checkpoint
        if checkpoint is not None and checkpoint.signal != "SIGTERM":
            raise UserMistake(
                f"checkpoint.signal: Kubernetes stops containers with SIGTERM, not {checkpoint.signal}"
            )
        manifest = {
            "apiVersion": self.resource.api_version,
            "kind": self.resource.kind,
            "metadata": draft.metadata(),
            "spec": self.spec(draft),
        }
        return (manifest, *self.companions(draft))

    @abstractmethod
    def get_state(self, manifest: Manifest, pods: PodSummary) -> ObjectState:
        """Return the state of an object from the API."""


def get_true_conditions(manifest: Manifest) -> dict[str, Manifest]:
    """Return the conditions that hold, by type."""
    conditions = manifest.get("status", {}).get("conditions", [])
    return {
        condition.get("type", ""): condition
        for condition in conditions
        if condition.get("status") == "True"
    }


def ended_state(state: JobState, condition: Manifest, *, ended: str | None = None) -> ObjectState:
    """Return a final state with the controller's reason."""
    texts = [condition.get("reason"), condition.get("message")]
    reason = "" if state == "succeeded" else ": ".join(text for text in texts if text)
    return ObjectState(state, reason, parse_time(ended or condition.get("lastTransitionTime")))


def unfinished_state(
    manifest: Manifest, pods: PodSummary, *, suspended: bool, running: bool
) -> ObjectState:
    """Return whether an object that has not ended is queued, running, or unknown, and whether it is being deleted."""
    names = ", ".join(pods.unreachable)
    away = f"its node {names} does not respond" if names else ""
    if manifest["metadata"].get("deletionTimestamp"):
        return ObjectState("running", away, canceling=True)
    if suspended:
        queue = manifest["metadata"].get("labels", {}).get(QUEUE_LABEL)
        return ObjectState("queued", f"waits in Kueue's queue {queue}" if queue else "is suspended")
    if pods.unreachable:
        return ObjectState("running" if pods.running else "unknown", away)
    if running or pods.running:
        return ObjectState("running")
    return ObjectState("queued", pods.waiting)


def create_service(draft: Draft, spec: Manifest) -> Manifest:
    return {
        "apiVersion": SERVICES.api_version,
        "kind": SERVICES.kind,
        "metadata": {"name": draft.name, "namespace": draft.namespace, "labels": draft.labels},
        "spec": spec,
    }
