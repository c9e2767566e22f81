"""Everything that a decision about jobs depends on, and which GPUs each request can use."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gpuyard.policies import JobView
from gpuyard.share.calendar import Calendar
from gpuyard.share.config import ShareConfig
from gpuyard.share.job_views import name_lease
from gpuyard.share.models import WHOLE, Lease
from gpuyard.share.queue import Allowance
from gpuyard.share.schedule import RUNNING, AnnouncedJob


@dataclass(frozen=True)
class ScheduleState:
    """Everything that a decision depends on."""

    config: ShareConfig
    announced: Sequence[AnnouncedJob]
    active: Sequence[Lease]
    """Leases that are held or in the queue."""
    order: Sequence[Lease]
    """Requests in the order in which they are served: those in the lease queue, and waiting jobs with their key as ID."""
    starting: Sequence[Lease]
    """Requests of jobs with an instruction to start, whether they have arrived or not."""
    calendar: Calendar
    allowance: Allowance
    """The GPUs that groups may lease beside those that are held and those of starting jobs."""
    boot: float
    now: float

    @cached_property
    def held(self) -> list[Lease]:
        return [lease for lease in self.active if lease.held]

    @cached_property
    def requests(self) -> dict[str, Lease]:
        """The requests in the order in which they are served, by the ID that policies see."""
        jobs = {job.key for job in self.announced}
        return {
            request.id if request.id in jobs else name_lease(request): request
            for request in self.order
        }

    def usable_gpus(self, request: Lease, gpus: Collection[int]) -> set[int]:
        """Return those of these GPUs on which a request could start now if they were free."""
        usable = self.calendar.usable_gpus(request, tuple(gpus), self.boot)
        return usable.intersection(request.requested_gpus or gpus)

    @cached_property
    def busy_gpus(self) -> set[int]:
        """The GPUs that leases hold, and those that jobs with an instruction to start will get."""
        busy = {gpu for lease in self.held for gpu in lease.gpus}
        for request in self.starting:
            free = dict.fromkeys(set(self.config.indices) - busy, WHOLE)
            rates = self.config.rates
            busy.update(self.calendar.choose_gpus(request, free, rates, self.boot) or ())
        return busy

    @cached_property
    def elastic_gpus(self) -> set[int]:
        """The GPUs of running jobs that can be resized."""
        elastic = {
            (job.uid, job.job.id)
            for job in self.announced
            if job.job.elastic and job.job.phase == RUNNING
        }
        held = (lease for lease in self.held if (lease.uid, lease.job) in elastic)
        return {gpu for lease in held for gpu in lease.gpus}

    def own_gpus(self, uid: int) -> set[int]:
        """Return the GPUs that a user has reserved for this time, and that are neither drained nor in use without a lease."""
        return {
            gpu
            for gpu in self.calendar.own_gpus(uid, self.boot).intersection(self.config.indices)
            if self.calendar.free_until(gpu, uid, self.boot) > self.boot
        }

    def largest_count(self, request: Lease, most: int, least: int, *, held: int = 0) -> int:
        """Return the most GPUs that quotas let a job have, which holds some of them already."""
        return next(
            (
                count
                for count in range(most, least, -1)
                if self.allowance.exceeded_group(replace(request, count=count - held)) is None
            ),
            least,
        )

    def can_count(self, view: JobView, idle: set[int]) -> bool:
        """Return whether a policy, which only counts GPUs, can decide about a request.

        If other GPUs are idle than those that it can use, the policy would start it without GPUs, or keep GPUs for it that it
        cannot use. Both would block others.
        """
        usable = self.usable_gpus(self.requests[view.id], idle)
        return len(usable) >= view.min_gpus or usable == idle
