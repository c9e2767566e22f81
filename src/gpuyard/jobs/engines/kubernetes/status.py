"""Parse handles, and read a job's status from its object and pods or, if it is gone, from the local record."""

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
from gpuyard.jobs.engines.kubernetes.kinds.base import ObjectKind, ObjectState
from gpuyard.jobs.engines.kubernetes.pods import PodSummary, parse_time
from gpuyard.jobs.engines.kubernetes.records import read_record
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.web_client import parse_json

_GPUS = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True)
class ObjectReference:
    """The parts of a handle: `kubernetes://CONTEXT/NAMESPACE/KIND/NAME`."""

    context: str
    namespace: str
    kind: ObjectKind
    name: str

    @classmethod
    def from_handle(cls, handle: Handle) -> "ObjectReference":
        """Parse a handle; raise UserMistake if it has another form."""
        parts = handle.id.rsplit("/", 3)  # a context may contain slashes
        if len(parts) != 4 or parts[2] not in KINDS:
            raise UserMistake(
                f"expected kubernetes://CONTEXT/NAMESPACE/KIND/NAME with one of the kinds {', '.join(KINDS)}, "
                f"got {handle}"
            )
        return cls(parts[0], parts[1], KINDS[parts[2]], parts[3])

    @property
    def handle(self) -> Handle:
        return Handle("kubernetes", f"{self.context}/{self.namespace}/{self.kind.name}/{self.name}")

    def check_handle(self) -> None:
        """Raise UserMistake if this cannot be written as a handle."""
        try:
            Handle.parse(str(self.handle))
        except UserMistake:
            raise UserMistake(
                f"the context {self.context!r} of your kubeconfig cannot be part of a handle; rename it to "
                "letters, digits, and '-' with `kubectl config rename-context`"
            ) from None


def get_selector(manifest: Manifest) -> str:
    return f"{UUID_LABEL}={get_label(manifest, UUID_LABEL)}"


def get_label(manifest: Manifest, name: str) -> str:
    return str(manifest["metadata"].get("labels", {}).get(name, ""))


def read_job(manifest: Manifest) -> Job | None:
    """Read the job from the object's annotation; None if it is invalid, since others may write there."""
    try:
        return Job.from_document(parse_json(manifest["metadata"]["annotations"][JOB_ANNOTATION]))
    except (ValueError, KeyError, OverflowError, TypeError):
        return None


def read_status(
    reference: ObjectReference, manifest: Manifest, pods: Sequence[Manifest]
) -> JobStatus:
    """Read the status from an object and its pods."""
    summary = PodSummary.from_pods(pods)
    object_state = _ignore_end_by_deletion(manifest, reference.kind.get_state(manifest, summary))
    annotations = manifest["metadata"].get("annotations", {})
    job = read_job(manifest)
    has_started = object_state.state == "running" or summary.started is not None
    gpus = annotations.get(GPUS_ANNOTATION, "")
    status = JobStatus(
        reference.handle,
        object_state.state,
        uuid=get_label(manifest, UUID_LABEL),
        name=annotations.get(NAME_ANNOTATION, ""),
        user=get_label(manifest, USER_LABEL),
        restarts=summary.restarts,
        exit_status=_find_exit_status(object_state.state, summary),
        gpus=int(gpus) if has_started and _GPUS.fullmatch(gpus) else None,
        nodes=summary.nodes,
        submitted=parse_time(manifest["metadata"].get("creationTimestamp")),
        started=summary.started,
        ended=object_state.ended,
        reason=object_state.reason,
        canceling=object_state.canceling,
    )
    return status if job is None else _add_job(status, job)


def _ignore_end_by_deletion(manifest: Manifest, state: ObjectState) -> ObjectState:
    """Return a failed state as being canceled if the deletion ended the command."""
    deleted = parse_time(manifest["metadata"].get("deletionTimestamp"))
    if state.state == "failed" and deleted is not None and (state.ended or deleted) >= deleted:
        return ObjectState("running", canceling=True)
    return state


def _add_job(status: JobStatus, job: Job) -> JobStatus:
    return replace(
        status,
        min_gpus=job.spec.gpus.min,
        max_gpus=job.spec.gpus.max,
        deadline=job.deadline,
        priority=job.spec.priority,
        command=job.spec.command,
    )


def _find_exit_status(state: str, pods: PodSummary) -> int | None:
    if state == "succeeded":
        return 0
    return pods.exit_status if state == "failed" and pods.exit_status else None


def unknown_status(handle: Handle, reason: str) -> JobStatus:
    """Return the status of a job whose cluster is unreachable, with the details of its record."""
    status, record = JobStatus(handle, "unknown", reason=reason), read_record(handle)
    if record is None:
        return status
    job = Job.from_document(record.job)
    status = replace(status, uuid=job.uuid, name=job.name, submitted=job.submitted)
    return _add_job(status, job)


def deleted_status(handle: Handle) -> JobStatus:
    """Return the status of a job whose object no longer exists."""
    record = read_record(handle)
    if record is None:
        raise UserMistake(f"job {handle} not found; it may have been deleted")
    job = Job.from_document(record.job)
    if record.canceled:
        status = JobStatus(handle, "cancelled", uuid=job.uuid, name=job.name)
    else:
        reason = "it was deleted in the cluster, by a user or by a cleanup after its end"
        status = JobStatus(handle, "lost", uuid=job.uuid, name=job.name, reason=reason)
    return _add_job(replace(status, submitted=job.submitted), job)
