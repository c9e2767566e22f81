"""The Kubernetes engine: each job is one object, identified by its handle and UUID."""

import random
import secrets
from collections.abc import Iterator, Sequence
from typing import ClassVar

from gpuyard.errors import GpuyardError, NoResponse, UserMistake
from gpuyard.jobs.engines.base import Availability, Engine, select_newest
from gpuyard.jobs.engines.kubernetes.availability import check_availability, find_problem
from gpuyard.jobs.engines.kubernetes.cluster import (
    ApiError,
    KubernetesCluster,
    resolve_context,
)
from gpuyard.jobs.engines.kubernetes.draft import (
    USER_LABEL,
    UUID_LABEL,
    Draft,
    Manifest,
    user_label,
)
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.kinds.base import SECRETS, SERVICES
from gpuyard.jobs.engines.kubernetes.kinds.core import TOKEN_KEY
from gpuyard.jobs.engines.kubernetes.logs import LogSource, follow_logs, read_logs
from gpuyard.jobs.engines.kubernetes.objects import MalformedObject
from gpuyard.jobs.engines.kubernetes.pods import PodSummary
from gpuyard.jobs.engines.kubernetes.records import (
    KubernetesRecord,
    delete_record,
    list_old,
    mark_cancelled,
    read_record,
)
from gpuyard.jobs.engines.kubernetes.request import KubernetesRequest
from gpuyard.jobs.engines.kubernetes.server import (
    CURRENT,
    CURRENT_VERSION,
    ServerVersion,
    format_version,
)
from gpuyard.jobs.engines.kubernetes.status import (
    ObjectReference,
    deleted_status,
    get_label,
    get_selector,
    read_job,
    read_status,
    unknown_status,
)
from gpuyard.jobs.job import Handle, Job, JobStatus
from gpuyard.specs.engines.kubernetes import KubernetesOptions


class KubernetesEngine(Engine):
    """Keeps one object per job in the cluster, and locally only a record of the submission."""

    name: ClassVar[str] = "kubernetes"
    plans_anywhere: ClassVar[bool] = True

    def __init__(self) -> None:
        self._clusters: dict[str | None, KubernetesCluster] = {}
        """Connections by context, because a kubeconfig may run a login program, which should run only once."""

    def available(self) -> Availability:
        return check_availability()

    def plan(self, job: Job) -> KubernetesRequest:
        """Plan for the server's version; without an answer, for a current server, and `submit` plans again."""
        options = job.spec.kubernetes or KubernetesOptions()
        context, namespace = resolve_context(options.context)
        version, doubts = self._read_version(context)
        draft = Draft(job, options, options.namespace or namespace, version or CURRENT_VERSION)
        kind = KINDS[options.kind]
        return KubernetesRequest(
            job=job,
            kind=options.kind,
            context=context,
            namespace=draft.namespace,
            name=draft.name,
            manifests=kind.manifests(draft),
            caveats=(*doubts, *_list_caveats(draft), *kind.caveats(draft)),
            version_known=version is not None,
        )

    def submit(self, request: KubernetesRequest) -> Handle:
        """Submit the job. Its object's name contains the UUID, so a lost answer never leads to a second object."""
        cluster = self._cluster(request.context)
        if not request.version_known:
            cluster.version()  # raises if the cluster still does not answer
            request = self.plan(request.job)
        kind = KINDS[request.kind]
        reference = ObjectReference(request.context or "", request.namespace, kind, request.name)
        reference.check_handle()
        KubernetesRecord(reference.handle, request.job.document()).write()
        manifest, *companions = request.manifests
        try:
            created = _create_once(cluster, reference, manifest)
        except GpuyardError as error:
            rejected = not isinstance(error, NoResponse | MalformedObject)
            if rejected or (isinstance(error, NoResponse) and not error.sent):
                delete_record(reference.handle)
            raise
        owner = {
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "name": request.name,
            "uid": created["metadata"].get("uid", ""),
        }
        if request.kind == "notebook":
            companions.append(_create_token_secret(manifest))
        try:
            _check_complete(manifest, created)
            for companion in companions:
                _create_companion(cluster, reference, companion, owner)
        except GpuyardError as error:
            _undo(cluster, reference, error)
            raise
        return reference.handle

    def status(self, handle: Handle) -> JobStatus:
        reference = ObjectReference.from_handle(handle)
        try:
            cluster = self._cluster(reference.context)
            manifest = cluster.get(reference.kind.resource, reference.namespace, reference.name)
            pods = _group_pods(cluster, reference.namespace, get_selector(manifest))
            return _read_status(reference, manifest, pods)
        except ApiError as error:
            if error.status == 404:
                return deleted_status(handle)
            return unknown_status(handle, str(error))
        except (NoResponse, MalformedObject) as error:
            return unknown_status(handle, str(error))

    def list(self, ended: int | None = None) -> Sequence[JobStatus]:
        """Return the jobs in the current context's namespace; kinds that the cluster does not know are skipped.

        An object that is not valid for Kubernetes is a job in an unknown state.
        """
        context, namespace = resolve_context(None)
        cluster = self._cluster(context)
        selector = f"{UUID_LABEL},{USER_LABEL}={user_label()}"
        jobs = []
        pods = _group_pods(cluster, namespace, selector)
        for kind in KINDS.values():
            try:
                objects, malformed = cluster.list(kind.resource, namespace, selector)
            except ApiError as error:
                if error.status in {403, 404} and kind.needs:
                    continue
                raise
            for manifest in objects:
                name = manifest["metadata"]["name"]
                reference = ObjectReference(context or "", namespace, kind, name)
                jobs.append(_read_status(reference, manifest, pods))
            for number, bad in enumerate(malformed, start=1):
                name = bad.name or f"unnamed-{number}"
                reference = ObjectReference(context or "", namespace, kind, name)
                jobs.append(unknown_status(reference.handle, str(bad)))
        jobs.sort(key=lambda job: (job.submitted or 0.0, job.handle))
        return select_newest(jobs, ended)

    def find_number(self, number: str) -> Sequence[Handle]:
        """Return none: the names of objects are not numbers."""
        del number
        return ()

    def logs(self, handle: Handle, follow: bool) -> Iterator[str]:
        reference = ObjectReference.from_handle(handle)
        cluster = self._cluster(reference.context)
        manifest = self._get_object(cluster, reference)
        source = LogSource(
            cluster, reference.namespace, get_selector(manifest), reference.kind.container
        )
        job = read_job(manifest)
        nodes = 1 if job is None else job.spec.nodes or 1
        if not follow:
            return read_logs(source, nodes)

        def ended() -> bool:
            try:
                current = cluster.get(reference.kind.resource, reference.namespace, reference.name)
            except ApiError as error:
                if error.status == 404:
                    return True
                raise
            return reference.kind.get_state(current, PodSummary()).state in {"succeeded", "failed"}

        return follow_logs(source, nodes, ended)

    def cancel(self, handle: Handle) -> None:
        """Delete the job's object, unless it has ended: then it stays, with its logs."""
        reference = ObjectReference.from_handle(handle)
        cluster = self._cluster(reference.context)
        manifest = self._get_object(cluster, reference)
        if reference.kind.get_state(manifest, PodSummary()).state in {"succeeded", "failed"}:
            return
        mark_cancelled(handle)
        try:
            cluster.delete(reference.kind.resource, reference.namespace, reference.name)
        except ApiError as error:
            if error.status != 404:
                raise

    def prune(self, before: float, *, limit: int = -1, dry_run: bool = False) -> int:
        """Delete records only; the objects are the cluster's. Ask a cluster that does not answer only once."""
        old, silent, pruned = list_old(before), set(), 0
        random.shuffle(old)  # so that long-running jobs never keep a limit from reaching others
        for handle in old if limit < 0 else old[:limit]:
            reference = ObjectReference.from_handle(handle)
            try:
                if reference.context not in silent and self._ended_before(reference, before):
                    pruned += 1
                    if not dry_run:
                        delete_record(handle)
            except GpuyardError:
                silent.add(reference.context)
        return pruned

    def _ended_before(self, reference: ObjectReference, before: float) -> bool:
        """Return whether a job whose record is that old was deleted, or ended before a time."""
        cluster = self._cluster(reference.context)
        try:
            manifest = cluster.get(reference.kind.resource, reference.namespace, reference.name)
        except ApiError as error:
            if error.status == 404:
                return True
            raise
        state = reference.kind.get_state(manifest, PodSummary())
        return state.state in {"succeeded", "failed"} and (state.ended or 0.0) < before

    def job(self, handle: Handle) -> Job:
        reference = ObjectReference.from_handle(handle)
        record = read_record(handle)
        if record is not None:
            return Job.from_document(record.job)
        job = read_job(self._get_object(self._cluster(reference.context), reference))
        return job if job is not None else super().job(handle)

    def _read_version(self, context: str | None) -> tuple[ServerVersion | None, tuple[str, ...]]:
        """Return the server's version, or None, and what the user should know about the server."""
        if find_problem() is not None:
            return None, ()
        try:
            cluster = self._cluster(context)
            version = cluster.version()
        except GpuyardError as error:
            needed = format_version(CURRENT)
            doubt = f"the version of Kubernetes is unknown ({error}); this is for {needed} or newer"
            return None, (doubt,)
        risk = "insecure-skip-tls-verify: your kubeconfig does not check who answers as the cluster; use certificate-authority-data"
        return version, () if cluster.verified else (risk,)

    def _cluster(self, context: str | None) -> KubernetesCluster:
        if context not in self._clusters:
            self._clusters[context] = KubernetesCluster(context)
        return self._clusters[context]

    def _get_object(self, cluster: KubernetesCluster, reference: ObjectReference) -> Manifest:
        try:
            return cluster.get(reference.kind.resource, reference.namespace, reference.name)
        except ApiError as error:
            if error.status == 404:
                raise UserMistake(
                    f"job {reference.handle} not found; it may have been deleted"
                ) from None
            raise


def _list_caveats(draft: Draft) -> Iterator[str]:
    spec = draft.job.spec
    if spec.gpus.min != spec.gpus.max:
        yield f"gpus: it requests {spec.gpus.max}, the maximum of {spec.gpus}, because the number cannot change on Kubernetes"
    if spec.priority and draft.options.priority_class is None:
        yield f"priority: {spec.priority} is ignored; use kubernetes.priority_class"


def _create_once(
    cluster: KubernetesCluster, reference: ObjectReference, manifest: Manifest
) -> Manifest:
    """Create the object; without an answer, try again, since the first request may have succeeded."""
    kind, sent = reference.kind, False
    for last in (False, True):
        try:
            return cluster.create(kind.resource, reference.namespace, manifest)
        except NoResponse as error:
            sent = sent or error.sent
            if last and not sent:
                raise
            if last:
                raise NoResponse(
                    f"{error}; the job may have been submitted as {reference.handle}: check with `gpuyard status` when "
                    "the cluster is reachable"
                ) from None
        except ApiError as error:
            # without a message, the kind is missing, not the namespace
            if error.status == 404 and kind.needs and not error.message:
                raise GpuyardError(
                    f"the cluster does not support {kind.resource.kind}: install {kind.needs}, or use "
                    f"kubernetes.kind: job, which needs nothing else ({error})"
                ) from None
            if error.status != 409:
                raise
            existing = cluster.get(kind.resource, reference.namespace, reference.name)
            if get_label(existing, UUID_LABEL) != manifest["metadata"]["labels"][UUID_LABEL]:
                raise
            return existing
    raise AssertionError


def _create_companion(
    cluster: KubernetesCluster, reference: ObjectReference, manifest: Manifest, owner: Manifest
) -> None:
    """Create an object that the job's object owns, so that both are deleted together."""
    resource = SECRETS if manifest["kind"] == SECRETS.kind else SERVICES
    owned = {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [owner]}}
    for last in (False, True):
        try:
            cluster.create(resource, reference.namespace, owned)
        except NoResponse:
            if last:
                raise
            continue
        except ApiError as error:
            if error.status != 409:  # the first request succeeded, but its answer was lost
                raise
        return


def _undo(cluster: KubernetesCluster, reference: ObjectReference, cause: GpuyardError) -> None:
    """Delete a job without its companions, which would wait for them forever."""
    try:
        cluster.delete(reference.kind.resource, reference.namespace, reference.name)
    except GpuyardError:
        raise GpuyardError(
            f"{cause}; the job was created only in part; remove it with gpuyard cancel {reference.handle}"
        ) from None
    mark_cancelled(reference.handle)


def _create_token_secret(manifest: Manifest) -> Manifest:
    metadata = manifest["metadata"]
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


_Pods = dict[str, list[Manifest | MalformedObject]]
"""Pods by their job's UUID."""


def _group_pods(cluster: KubernetesCluster, namespace: str, selector: str) -> _Pods:
    """Return the pods of jobs; none if the user may see jobs but not pods."""
    by_job: _Pods = {}
    try:
        listed = cluster.list_pods(namespace, selector)
    except ApiError as error:
        if error.status != 403:
            raise
        return {}
    for pod in listed.pods:
        by_job.setdefault(get_label(pod, UUID_LABEL), []).append(pod)
    for malformed in listed.malformed:
        by_job.setdefault(malformed.job_id, []).append(malformed)
    return by_job


def _read_status(reference: ObjectReference, manifest: Manifest, pods: _Pods) -> JobStatus:
    job_pods = pods.get(get_label(manifest, UUID_LABEL), [])
    for pod in job_pods:
        if isinstance(pod, MalformedObject):
            return unknown_status(reference.handle, str(pod))
    return read_status(reference, manifest, [pod for pod in job_pods if isinstance(pod, dict)])


def _check_complete(manifest: Manifest, created: Manifest) -> None:
    """Raise if the server has dropped a field, as servers do that are too old for it or have the feature switched off."""
    if dropped := [key for key in manifest["spec"] if key not in created["spec"]]:
        raise GpuyardError(
            f"the server ignores {', '.join(dropped)}, so the job would not run as you asked; gpuyard removed it again; use "
            f"Kubernetes {format_version(CURRENT)} or newer with its default features"
        )
