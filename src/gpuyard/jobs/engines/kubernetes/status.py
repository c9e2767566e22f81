"""What a handle means, and the status of the job that it names: from the object and its pods, or from what is left."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuyard.errors import UserMistake
from gpuyard.jobs.engines.kubernetes.draft import (
    GPUS_ANNOTATION,
    JOB_ANNOTATION,
    NAME_ANNOTATION,
    USER_LABEL,
    UUID_LABEL,
    Manifest,
)
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.kinds.base import ObjectKind
from gpuyard.jobs.engines.kubernetes.pods import PodsView, moment
from gpuyard.jobs.engines.kubernetes.records import record_of
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.web_client import json_of

_GPUS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class ObjectReference:
    """What a handle says: `kubernetes://CONTEXT/NAMESPACE/KIND/NAME`."""

    context: str
    namespace: str
    kind: ObjectKind
    name: str

    @classmethod
    def of(cls, handle: Handle) -> "ObjectReference":
        """Raises where it is none of ours."""
        parts = handle.id.rsplit("/", 3)  # a context may have slashes
        if len(parts) != 4 or parts[2] not in KINDS:
            raise UserMistake(
                f"expected kubernetes://CONTEXT/NAMESPACE/KIND/NAME with one of the kinds {', '.join(KINDS)}, "
                f"got {handle}"
            )
        return cls(parts[0], parts[1], KINDS[parts[2]], parts[3])

    @property
    def handle(self) -> Handle:
        return Handle("kubernetes", f"{self.context}/{self.namespace}/{self.kind.name}/{self.name}")

    def checked(self) -> "ObjectReference":
        """Raises where it can't be said as a handle, before anything is made."""
        try:
            Handle.parse(str(self.handle))
        except UserMistake:
            raise UserMistake(
                f"the context {self.context!r} of your kubeconfig can't be part of a handle; give it a name of "
                "letters, digits and '-' with `kubectl config rename-context`"
            ) from None
        return self


def selector(found: Manifest) -> str:
    return f"{UUID_LABEL}={label(found, UUID_LABEL)}"


def label(found: Manifest, name: str) -> str:
    return str(found["metadata"].get("labels", {}).get(name, ""))


def job_of(found: Manifest) -> Job | None:
    """What its submitter wrote of it, if that is a job: whoever may make objects in a namespace may write there."""
    try:
        return Job.from_document(json_of(found["metadata"]["annotations"][JOB_ANNOTATION]))
    except (ValueError, KeyError, OverflowError, TypeError):
        return None


def status_said(reference: ObjectReference, found: Manifest, pods: Sequence[Manifest]) -> JobStatus:
    """Of an object and its pods as they are told of; one that is not as Kubernetes has them hides no other."""
    try:
        return status_of(reference, found, PodsView.of(pods))
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
        return status_unknown(
            reference.handle, "what the cluster says of it is not as Kubernetes says it"
        )


def status_of(reference: ObjectReference, found: Manifest, pods: PodsView) -> JobStatus:
    seen = reference.kind.state_of(found, pods)
    annotations = found["metadata"].get("annotations") or {}
    job = job_of(found)
    begun = seen.state == "running" or pods.started is not None
    gpus = annotations.get(GPUS_ANNOTATION, "")
    status = JobStatus(
        reference.handle,
        seen.state,
        uuid=label(found, UUID_LABEL),
        name=annotations.get(NAME_ANNOTATION, ""),
        user=label(found, USER_LABEL),
        restarts=pods.restarts,
        exit_status=_exit_status(seen.state, pods),
        gpus=int(gpus) if begun and _GPUS.fullmatch(gpus) else None,
        nodes=pods.nodes,
        submitted=moment(found["metadata"].get("creationTimestamp")),
        started=pods.started,
        ended=seen.ended,
        reason=seen.reason,
    )
    return status if job is None else _with_job(status, job)


def _with_job(status: JobStatus, job: Job) -> JobStatus:
    return replace(
        status,
        min_gpus=job.spec.gpus.min,
        max_gpus=job.spec.gpus.max,
        deadline=job.deadline,
        priority=job.spec.priority,
        command=job.spec.command,
    )


def _exit_status(state: str, pods: PodsView) -> int | None:
    if state == "succeeded":
        return 0
    return pods.exit_status if state == "failed" and pods.exit_status else None


def status_unknown(handle: Handle, reason: str) -> JobStatus:
    """Of a job that can't be asked for now, with what is known of it here."""
    status, record = JobStatus(handle, "unknown", reason=reason), record_of(handle)
    if record is None:
        return status
    job = Job.from_document(record.job)
    known = replace(status, uuid=job.uuid, name=job.name, submitted=job.submitted)
    return _with_job(known, job)


def status_of_gone(handle: Handle) -> JobStatus:
    record = record_of(handle)
    if record is None:
        raise UserMistake(f"there is no job {handle}, or no longer")
    job = Job.from_document(record.job)
    if record.cancelled:
        status = JobStatus(handle, "cancelled", uuid=job.uuid, name=job.name)
    else:
        why = "somebody deleted it in the cluster, or it was cleaned up after its end"
        status = JobStatus(handle, "lost", uuid=job.uuid, name=job.name, reason=why)
    return _with_job(replace(status, submitted=job.submitted), job)
