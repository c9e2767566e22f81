"""The step reports of a job on this machine."""

from collections.abc import Sequence
from pathlib import Path

from gpuyard.jobs.engines.local.paths import JobPaths
from gpuyard.jobs.engines.local.store import StoredJob
from gpuyard.jobs.progress import Progress, estimate_progress
from gpuyard.reporting.windows import MAX_WINDOWS, StepsFile, StepWindow


def read_progress(job: StoredJob, reports: "StepReports", now: float) -> Progress:
    """Estimate a job's progress from its reports and from the estimate at its submission."""
    summary = job.summary
    return estimate_progress(
        reports.read_job(job),
        curve=job.estimate.curve if job.has_curve else None,
        gpus=job.gpus or summary.max_gpus,
        now=now,
        total_samples=job.samples,
        resumes=summary.resumes,
    )


class StepReports:
    """Reads the step reports of jobs; each call reads only what was added since the last one.

    A call reads a few megabytes at most, so that a long file delays nothing. With `tail_only`, it begins near the end.
    """

    def __init__(self, paths: JobPaths, *, tail_only: bool = False) -> None:
        self._paths = paths
        self._tail_only = tail_only
        self._files: dict[Path, tuple[StepsFile, list[StepWindow]]] = {}
        self._is_cut = False

    def read_job(self, job: StoredJob, *, completely: bool = False) -> Sequence[StepWindow]:
        """Return the reports of all starts, oldest first."""
        return [
            window
            for number in range(1, job.start_count + 1)
            for window in self.read_start(job, number, completely=completely)
        ]

    def read_start(
        self, job: StoredJob, number: int, *, completely: bool = False
    ) -> Sequence[StepWindow]:
        """Return the reports of one start: those in its report file, and those that it printed."""
        start = self._paths.start(job.number, number)
        reports: list[StepWindow] = []
        for path in (start.steps, start.log):
            file, windows = self._files.get(path) or self._open(path)
            before = file.offset
            windows += file.read()
            while completely and file.offset > before and len(windows) < MAX_WINDOWS:
                before = file.offset
                windows += file.read()
            del windows[:-MAX_WINDOWS]
            reports += windows
        return reports

    def counts_everything(self, windows: Sequence[StepWindow]) -> bool:
        """Return whether the work done is known: all reports were read, or the last one counts those before."""
        last = windows[-1] if windows else None
        return not self._is_cut or (
            last is not None and (last.samples_done is not None or last.number is not None)
        )

    def forget(self, job: StoredJob) -> None:
        """Free the memory of a job that has ended."""
        for number in range(1, job.start_count + 1):
            start = self._paths.start(job.number, number)
            for path in (start.steps, start.log):
                self._files.pop(path, None)

    def _open(self, path: Path) -> tuple[StepsFile, list[StepWindow]]:
        file = StepsFile.open_tail(path) if self._tail_only else StepsFile(path)
        self._is_cut = self._is_cut or file.offset > 0
        self._files[path] = file, []
        return self._files[path]
