"""Kubernetes as an engine: a job is one object of a kind, found by its handle and told apart by its UUID."""

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.jobs.engines.base import Availability, Engine
from gpuyard.jobs.engines.kubernetes.cluster import (
    Cluster,
    NoAnswer,
    Refused,
    default_place,
    why_unusable,
)
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.kinds.base import SECRETS, SERVICES, Kind
from gpuyard.jobs.engines.kubernetes.kinds.notebook import TOKEN_KEY
from gpuyard.jobs.engines.kubernetes.logs import LogSource, followed, printed
from gpuyard.jobs.engines.kubernetes.pods import PodsView
from gpuyard.jobs.engines.kubernetes.records import Record, mark_cancelled, record_of
from gpuyard.jobs.engines.kubernetes.request import KubernetesRequest
from gpuyard.jobs.engines.kubernetes.work import (
    GPUS_ANNOTATION,
    JOB_ANNOTATION,
    NAME_ANNOTATION,
    USER_LABEL,
    UUID_LABEL,
    Manifest,
    Work,
    this_user,
)
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.specs.kubernetes_options import KubernetesOptions


@dataclass(frozen=True)
class Spot:
    """What a handle says: `kubernetes://CONTEXT/NAMESPACE/KIND/NAME`."""

    context: str
    namespace: str
    kind: Kind
    name: str

    @classmethod
    def of(cls, handle: Handle) -> "Spot":
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

    def checked(self) -> "Spot":
        """Raises where it can't be said as a handle, before anything is made."""
        try:
            Handle.parse(str(self.handle))
        except UserMistake:
            raise UserMistake(
                f"the context {self.context!r} of your kubeconfig can't be part of a handle; give it a name of "
                "letters, digits and '-' with `kubectl config rename-context`"
            ) from None
        return self


class KubernetesEngine(Engine):
    """One object a job; what is known of it is in the cluster, and here only that it was submitted."""

    name: ClassVar[str] = "kubernetes"

    def available(self) -> Availability:
        reason = why_unusable()
        return Availability(ok=reason is None, reason=reason or "")

    def plan(self, job: Job) -> KubernetesRequest:
        options = job.spec.kubernetes or KubernetesOptions()
        context, namespace = default_place(options.context)
        work = Work(job, options, options.namespace or namespace)
        kind = KINDS[options.kind]
        return KubernetesRequest(
            job=job,
            kind=options.kind,
            context=context,
            namespace=work.namespace,
            name=work.name,
            manifests=kind.manifests(work),
            caveats=(*_caveats(work), *kind.caveats(work)),
        )

    def submit(self, request: Any) -> Handle:
        """The object's name has the UUID: what was made before an answer was lost is found again, not made twice."""
        assert isinstance(request, KubernetesRequest)  # noqa: S101
        cluster = Cluster(request.context)
        kind = KINDS[request.kind]
        spot = Spot(request.context or "", request.namespace, kind, request.name).checked()
        Record(spot.handle, request.job.document()).write()
        own, *beside = request.manifests
        made = _create_once(cluster, spot, own)
        owner = {
            "apiVersion": own["apiVersion"],
            "kind": own["kind"],
            "name": request.name,
            "uid": made["metadata"]["uid"],
        }
        if request.kind == "notebook":
            beside.append(_token_secret(own))
        try:
            for manifest in beside:
                _create_beside(cluster, spot, manifest, owner)
        except Refused:
            cluster.delete(kind.resource, spot.namespace, spot.name)
            mark_cancelled(spot.handle)
            raise
        return spot.handle

    def status(self, handle: Handle) -> JobStatus:
        spot = Spot.of(handle)
        try:
            cluster = Cluster(spot.context)
            found = cluster.get(spot.kind.resource, spot.namespace, spot.name)
            return _status(spot, found, _pods(cluster, spot, found))
        except Refused as refused:
            if refused.status == 404:
                return _gone(handle)
            return JobStatus(handle, "unknown", reason=str(refused))
        except NoAnswer as fault:
            return JobStatus(handle, "unknown", reason=str(fault))

    def list(self) -> Sequence[JobStatus]:
        """Of the current context's namespace; kinds that the cluster does not know have none."""
        context, namespace = default_place(None)
        cluster = Cluster(context)
        selector = f"{UUID_LABEL},{USER_LABEL}={this_user()}"
        jobs = []
        for kind in KINDS.values():
            try:
                objects = cluster.found(kind.resource, namespace, selector)
            except Refused as refused:
                if refused.status in {403, 404} and kind.needs:
                    continue
                raise
            for found in objects:
                spot = Spot(context or "", namespace, kind, found["metadata"]["name"])
                jobs.append(_status(spot, found, _pods(cluster, spot, found)))
        return sorted(jobs, key=lambda job: (job.submitted or 0.0, job.handle))

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        spot = Spot.of(handle)
        cluster = Cluster(spot.context)
        found = self._found(cluster, spot)
        source = LogSource(cluster, spot.namespace, _selector(found), spot.kind.container)
        job = _job_of(found)
        nodes = 1 if job is None else job.spec.nodes or 1
        if not follow:
            return printed(source, nodes)

        def ended() -> bool:
            try:
                now = cluster.get(spot.kind.resource, spot.namespace, spot.name)
            except Refused as refused:
                if refused.status == 404:
                    return True
                raise
            return spot.kind.progress(now, PodsView()).state in {"succeeded", "failed"}

        return followed(source, nodes, ended)

    def cancel(self, handle: Handle) -> None:
        """Deletes it; one that has ended stays, with what it printed."""
        spot = Spot.of(handle)
        cluster = Cluster(spot.context)
        found = self._found(cluster, spot)
        if spot.kind.progress(found, PodsView()).state in {"succeeded", "failed"}:
            return
        mark_cancelled(handle)
        try:
            cluster.delete(spot.kind.resource, spot.namespace, spot.name)
        except Refused as refused:
            if refused.status != 404:
                raise

    def job(self, handle: Handle) -> Job:
        spot = Spot.of(handle)
        record = record_of(handle)
        if record is not None:
            return Job.from_document(record.job)
        job = _job_of(self._found(Cluster(spot.context), spot))
        return job if job is not None else super().job(handle)

    def _found(self, cluster: Cluster, spot: Spot) -> Manifest:
        try:
            return cluster.get(spot.kind.resource, spot.namespace, spot.name)
        except Refused as refused:
            if refused.status == 404:
                raise UserMistake(f"there is no job {spot.handle}, or no longer") from None
            raise


def _caveats(work: Work) -> Iterator[str]:
    spec = work.job.spec
    if spec.gpus.min != spec.gpus.max:
        yield f"gpus: it asks for {spec.gpus.max}, the most of {spec.gpus}: on Kubernetes the number stays"
    if spec.priority and work.options.priority_class is None:
        yield f"priority: {spec.priority} is not passed on; kubernetes.priority_class is"


def _create_once(cluster: Cluster, spot: Spot, manifest: Manifest) -> Manifest:
    """Asked again where no answer came, since the first may have been heard."""
    kind = spot.kind
    for last in (False, True):
        try:
            return cluster.create(kind.resource, spot.namespace, manifest)
        except NoAnswer as fault:
            if last:
                raise NoAnswer(
                    f"{fault}; it may have been submitted as {spot.handle}: `gpuyard status` says so when "
                    "the cluster answers"
                ) from None
        except Refused as refused:
            if refused.status == 404 and kind.needs:
                raise GpuyardError(
                    f"the cluster knows no {kind.resource.kind}: it needs {kind.needs}; kubernetes.kind: job "
                    f"needs nothing ({refused})"
                ) from None
            if refused.status != 409:
                raise
            found = cluster.get(kind.resource, spot.namespace, spot.name)
            if _label(found, UUID_LABEL) != manifest["metadata"]["labels"][UUID_LABEL]:
                raise
            return found
    raise AssertionError


def _create_beside(cluster: Cluster, spot: Spot, manifest: Manifest, owner: Manifest) -> None:
    """Owned by the job's object: it goes when that goes, whoever deletes it."""
    resource = SECRETS if manifest["kind"] == SECRETS.kind else SERVICES
    owned = {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}
    try:
        cluster.create(resource, spot.namespace, owned)
    except Refused as refused:
        if refused.status != 409:
            raise


def _token_secret(own: Manifest) -> Manifest:
    metadata = own["metadata"]
    return {
        "apiVersion": SECRETS.api_version,
        "kind": SECRETS.kind,
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": {UUID_LABEL: metadata["labels"][UUID_LABEL]},
        },
        "type": "Opaque",
        "stringData": {TOKEN_KEY: secrets.token_urlsafe(32)},
    }


def _pods(cluster: Cluster, spot: Spot, found: Manifest) -> PodsView:
    """One may be allowed to see jobs and not pods."""
    try:
        return PodsView.of(cluster.pods(spot.namespace, _selector(found))[0])
    except Refused:
        return PodsView()


def _selector(found: Manifest) -> str:
    return f"{UUID_LABEL}={_label(found, UUID_LABEL)}"


def _label(found: Manifest, name: str) -> str:
    return str(found["metadata"].get("labels", {}).get(name, ""))


def _job_of(found: Manifest) -> Job | None:
    import json

    try:
        return Job.from_document(json.loads(found["metadata"]["annotations"][JOB_ANNOTATION]))
    except (ValueError, KeyError, TypeError):
        return None


def _status(spot: Spot, found: Manifest, pods: PodsView) -> JobStatus:
    progress = spot.kind.progress(found, pods)
    annotations = found["metadata"].get("annotations") or {}
    made = found["metadata"].get("creationTimestamp")
    job = _job_of(found)
    begun = progress.state == "running" or pods.started is not None
    gpus = annotations.get(GPUS_ANNOTATION, "")
    status = JobStatus(
        spot.handle,
        progress.state,
        uuid=_label(found, UUID_LABEL),
        name=annotations.get(NAME_ANNOTATION, ""),
        user=_label(found, USER_LABEL),
        restarts=pods.restarts,
        exit_status=_exit_status(progress.state, pods),
        gpus=int(gpus) if begun and gpus.isdecimal() else None,
        nodes=pods.nodes,
        submitted=None if not made else datetime.fromisoformat(made).timestamp(),
        started=pods.started,
        ended=progress.ended,
        reason=progress.reason,
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


def _gone(handle: Handle) -> JobStatus:
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
