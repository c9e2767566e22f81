"""Kubernetes as an engine: a job is one object of a kind, found by its handle and told apart by its UUID."""

import secrets
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gpuyard.errors import GpuyardError, NoAnswer, UserMistake
from gpuyard.jobs.engines.base import Availability, Engine
from gpuyard.jobs.engines.kubernetes.cluster import (
    ApiRefused,
    KubernetesCluster,
    default_place,
    why_unusable,
)
from gpuyard.jobs.engines.kubernetes.draft import (
    USER_LABEL,
    UUID_LABEL,
    Draft,
    Manifest,
    this_user,
)
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.kinds.base import SECRETS, SERVICES
from gpuyard.jobs.engines.kubernetes.kinds.notebook import TOKEN_KEY
from gpuyard.jobs.engines.kubernetes.logs import LogSource, followed, printed
from gpuyard.jobs.engines.kubernetes.pods import PodsView
from gpuyard.jobs.engines.kubernetes.records import (
    KubernetesRecord,
    forget,
    mark_cancelled,
    record_of,
)
from gpuyard.jobs.engines.kubernetes.request import KubernetesRequest
from gpuyard.jobs.engines.kubernetes.status import (
    ObjectReference,
    job_of,
    label,
    selector,
    status_of_gone,
    status_said,
    status_unknown,
)
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.specs.engines.kubernetes import KubernetesOptions


class KubernetesEngine(Engine):
    """One object a job; what is known of it is in the cluster, and here only that it was submitted."""

    name: ClassVar[str] = "kubernetes"
    plans_anywhere: ClassVar[bool] = True

    def __init__(self) -> None:
        self._clusters: dict[str | None, KubernetesCluster] = {}
        """By context: a kubeconfig may start a program to log in, which is not to run for every question."""

    def available(self) -> Availability:
        reason = why_unusable()
        return Availability(ok=reason is None, reason=reason or "")

    def plan(self, job: Job) -> KubernetesRequest:
        options = job.spec.kubernetes or KubernetesOptions()
        context, namespace = default_place(options.context)
        draft = Draft(job, options, options.namespace or namespace)
        kind = KINDS[options.kind]
        return KubernetesRequest(
            job=job,
            kind=options.kind,
            context=context,
            namespace=draft.namespace,
            name=draft.name,
            manifests=kind.manifests(draft),
            caveats=(*_caveats(draft), *kind.caveats(draft)),
        )

    def submit(self, request: KubernetesRequest) -> Handle:
        """The object's name has the UUID: what was made before an answer was lost is found again, not made twice."""
        cluster = self._cluster(request.context)
        kind = KINDS[request.kind]
        reference = ObjectReference(
            request.context or "", request.namespace, kind, request.name
        ).checked()
        KubernetesRecord(reference.handle, request.job.document()).write()
        own, *companions = request.manifests
        try:
            made = _create_once(cluster, reference, own)
        except GpuyardError as fault:
            if not isinstance(fault, NoAnswer) or not fault.sent:
                forget(reference.handle)
            raise
        owner = {
            "apiVersion": own["apiVersion"],
            "kind": own["kind"],
            "name": request.name,
            "uid": made["metadata"]["uid"],
        }
        if request.kind == "notebook":
            companions.append(_token_secret(own))
        try:
            for manifest in companions:
                _create_companion(cluster, reference, manifest, owner)
        except GpuyardError as fault:
            _undo(cluster, reference, fault)
            raise
        return reference.handle

    def status(self, handle: Handle) -> JobStatus:
        reference = ObjectReference.of(handle)
        try:
            cluster = self._cluster(reference.context)
            found = cluster.get(reference.kind.resource, reference.namespace, reference.name)
            pods = _pods_by_job(cluster, reference.namespace, selector(found))
            return status_said(reference, found, pods.get(label(found, UUID_LABEL), []))
        except ApiRefused as refused:
            if refused.status == 404:
                return status_of_gone(handle)
            return status_unknown(handle, str(refused))
        except NoAnswer as fault:
            return status_unknown(handle, str(fault))

    def list(self) -> Sequence[JobStatus]:
        """Of the current context's namespace; kinds that the cluster does not know have none."""
        context, namespace = default_place(None)
        cluster = self._cluster(context)
        ours = f"{UUID_LABEL},{USER_LABEL}={this_user()}"
        jobs = []
        pods = _pods_by_job(cluster, namespace, ours)
        for kind in KINDS.values():
            try:
                objects = cluster.found(kind.resource, namespace, ours)
            except ApiRefused as refused:
                if refused.status in {403, 404} and kind.needs:
                    continue
                raise
            for found in objects:
                reference = ObjectReference(
                    context or "", namespace, kind, found["metadata"]["name"]
                )
                own = pods.get(label(found, UUID_LABEL), [])
                jobs.append(status_said(reference, found, own))
        return sorted(jobs, key=lambda job: (job.submitted or 0.0, job.handle))

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        reference = ObjectReference.of(handle)
        cluster = self._cluster(reference.context)
        found = self._found(cluster, reference)
        source = LogSource(cluster, reference.namespace, selector(found), reference.kind.container)
        job = job_of(found)
        nodes = 1 if job is None else job.spec.nodes or 1
        if not follow:
            return printed(source, nodes)

        def ended() -> bool:
            try:
                now = cluster.get(reference.kind.resource, reference.namespace, reference.name)
            except ApiRefused as refused:
                if refused.status == 404:
                    return True
                raise
            return reference.kind.state_of(now, PodsView()).state in {"succeeded", "failed"}

        return followed(source, nodes, ended)

    def cancel(self, handle: Handle) -> None:
        """Deletes it; one that has ended stays, with what it printed."""
        reference = ObjectReference.of(handle)
        cluster = self._cluster(reference.context)
        found = self._found(cluster, reference)
        if reference.kind.state_of(found, PodsView()).state in {"succeeded", "failed"}:
            return
        mark_cancelled(handle)
        try:
            cluster.delete(reference.kind.resource, reference.namespace, reference.name)
        except ApiRefused as refused:
            if refused.status != 404:
                raise

    def job(self, handle: Handle) -> Job:
        reference = ObjectReference.of(handle)
        record = record_of(handle)
        if record is not None:
            return Job.from_document(record.job)
        job = job_of(self._found(self._cluster(reference.context), reference))
        return job if job is not None else super().job(handle)

    def _cluster(self, context: str | None) -> KubernetesCluster:
        if context not in self._clusters:
            self._clusters[context] = KubernetesCluster(context)
        return self._clusters[context]

    def _found(self, cluster: KubernetesCluster, reference: ObjectReference) -> Manifest:
        try:
            return cluster.get(reference.kind.resource, reference.namespace, reference.name)
        except ApiRefused as refused:
            if refused.status == 404:
                raise UserMistake(f"there is no job {reference.handle}, or no longer") from None
            raise


def _caveats(draft: Draft) -> Iterator[str]:
    spec = draft.job.spec
    if spec.gpus.min != spec.gpus.max:
        yield f"gpus: it asks for {spec.gpus.max}, the most of {spec.gpus}: on Kubernetes the number stays"
    if spec.priority and draft.options.priority_class is None:
        yield f"priority: {spec.priority} is not passed on; kubernetes.priority_class is"


def _create_once(
    cluster: KubernetesCluster, reference: ObjectReference, manifest: Manifest
) -> Manifest:
    """Asked again where no answer came, since the first may have been heard."""
    kind, heard = reference.kind, False
    for last in (False, True):
        try:
            return cluster.create(kind.resource, reference.namespace, manifest)
        except NoAnswer as fault:
            heard = heard or fault.sent
            if last and not heard:
                raise
            if last:
                raise NoAnswer(
                    f"{fault}; it may have been submitted as {reference.handle}: `gpuyard status` says so when "
                    "the cluster answers"
                ) from None
        except ApiRefused as refused:
            if (
                refused.status == 404 and kind.needs and not refused.message
            ):  # its kind, not its namespace
                raise GpuyardError(
                    f"the cluster knows no {kind.resource.kind}: it needs {kind.needs}; kubernetes.kind: job "
                    f"needs nothing ({refused})"
                ) from None
            if refused.status != 409:
                raise
            found = cluster.get(kind.resource, reference.namespace, reference.name)
            if label(found, UUID_LABEL) != manifest["metadata"]["labels"][UUID_LABEL]:
                raise
            return found
    raise AssertionError


def _create_companion(
    cluster: KubernetesCluster, reference: ObjectReference, manifest: Manifest, owner: Manifest
) -> None:
    """Owned by the job's object: it goes when that goes, whoever deletes it."""
    resource = SECRETS if manifest["kind"] == SECRETS.kind else SERVICES
    owned = {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}
    for last in (False, True):
        try:
            cluster.create(resource, reference.namespace, owned)
        except NoAnswer:
            if last:
                raise
            continue
        except ApiRefused as refused:
            if refused.status != 409:  # made before its answer was lost
                raise
        return


def _undo(cluster: KubernetesCluster, reference: ObjectReference, why: GpuyardError) -> None:
    """A job that lacks a part would only wait for it."""
    try:
        cluster.delete(reference.kind.resource, reference.namespace, reference.name)
    except GpuyardError:
        raise GpuyardError(
            f"{why}; a part of it is there: gpuyard cancel {reference.handle}"
        ) from None
    mark_cancelled(reference.handle)


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


def _pods_by_job(
    cluster: KubernetesCluster, namespace: str, wanted: str
) -> dict[str, list[Manifest]]:
    """By the job's UUID. One may be allowed to see jobs and not pods."""
    by_job: dict[str, list[Manifest]] = {}
    try:
        for pod in cluster.pods(namespace, wanted)[0]:
            by_job.setdefault(label(pod, UUID_LABEL), []).append(pod)
    except ApiRefused as refused:
        if refused.status != 403:
            raise
    return by_job
