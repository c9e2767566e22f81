"""Runs a storage bench: tries the requested number of GPUs, then finds the largest number that passes.

In a trial, each emulated GPU has readers that fetch batches ahead, and sleeps instead of computing.
"""

import contextlib
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.measure.record import create_identity, discover_testbed, hash_key
from gpuyard.measure.storage.cache import (
    BLOCK,
    TIMES_MEMORY,
    allocate_buffer,
    choose_cache_bypass,
    find_filesystem,
    open_file,
)
from gpuyard.measure.storage.plan import StoragePlan
from gpuyard.measure.storage.records import CacheBypass, StorageBench, Trial
from gpuyard.temporary import temporary_directory
from gpuyard.units import format_count

_MAX_TIMES_REQUESTED = 8
_MIN_STEPS = 5
_PREFETCHED_BATCHES = 2


def run_storage(
    plan: StoragePlan, on_progress: ProgressCallback = lambda _progress: None
) -> StorageBench:
    """Find the largest number of GPUs that passes, unless the page cache would serve the reads."""
    with _open_dataset(plan, on_progress) as files:
        dataset_bytes = sum(path.stat().st_size for path in files)
        bypass = choose_cache_bypass(files, dataset_bytes)
        filesystem = find_filesystem(files[0])
        trials: tuple[Trial, ...] = ()
        reason = ""
        if bypass == "none":
            reason = (
                f"reads from {filesystem} cannot bypass the page cache here, and the dataset is smaller "
                f"than {TIMES_MEMORY} × memory, so the bench would measure memory"
            )
        else:

            def try_gpus(count: int) -> Trial:
                def report(fraction: float) -> None:
                    on_progress(ProgressUpdate(format_count(count, "GPU"), fraction, 1.0))

                return run_trial(plan, files, bypass, count, report)

            try:
                trials = _search(plan, try_gpus)
            except OSError as error:
                raise GpuyardError(f"{plan.path} cannot be read: {error.strerror}") from error
    passed = [trial.gpus for trial in trials if trial.passed]
    enough = any(trial.gpus == plan.gpus and trial.passed for trial in trials)
    testbed = discover_testbed()
    return StorageBench(
        **create_identity(hash_key({**plan.describe(), "host": testbed.fingerprint()})),
        host=testbed,
        path=str(plan.path),
        model=plan.model,
        gpu=plan.gpu,
        batch=plan.batch,
        compute_seconds=plan.compute_seconds,
        record_bytes=plan.record_bytes,
        min_utilization=plan.min_utilization,
        source=plan.source,
        filesystem=filesystem,
        dataset_bytes=dataset_bytes,
        own_dataset=plan.data is None,
        cache=bypass,
        requested_gpus=plan.gpus,
        trials=tuple(sorted(trials, key=lambda trial: trial.gpus)),
        verdict="refused" if reason else "passes" if enough else "starves",
        max_gpus=None if reason else max(passed, default=0),
        reason=reason,
    )


def _search(plan: StoragePlan, try_gpus: Callable[[int], Trial]) -> tuple[Trial, ...]:
    """Double the GPUs while they pass, up to 8 times the requested number; then bisect."""
    trials = [try_gpus(plan.gpus)]
    while trials[-1].passed and trials[-1].gpus < _MAX_TIMES_REQUESTED * plan.gpus:
        trials.append(try_gpus(2 * trials[-1].gpus))
    low = max((t.gpus for t in trials if t.passed), default=0)
    high = min((t.gpus for t in trials if not t.passed), default=low + 1)
    while high - low > 1:
        trial = try_gpus((low + high) // 2)
        trials.append(trial)
        low, high = (trial.gpus, high) if trial.passed else (low, trial.gpus)
    return tuple(trials)


@contextlib.contextmanager
def _open_dataset(plan: StoragePlan, on_progress: ProgressCallback) -> Iterator[list[Path]]:
    if plan.data is not None:
        yield _list_files(plan.data)
        return
    with write_dataset(
        plan.path,
        plan.own_bytes,
        plan.own_files,
        lambda fraction: on_progress(ProgressUpdate("writing a dataset", fraction, 1.0)),
    ) as files:
        yield files


@contextlib.contextmanager
def write_dataset(
    directory: Path, total_bytes: int, files: int, on_written: Callable[[float], None]
) -> Iterator[list[Path]]:
    """Write files of random bytes, which storage cannot compress, and remove them at the end.

    If the process is killed, the next bench removes them.
    """
    file_bytes = max(BLOCK, -(-total_bytes // files // BLOCK) * BLOCK)
    try:
        with temporary_directory(directory, "storage", hidden=True) as temporary:
            paths = [temporary / f"{index:04d}.bin" for index in range(files)]
            for index, path in enumerate(paths):
                _write(path, file_bytes)
                on_written((index + 1) / files)
            yield paths
    except OSError as error:
        raise GpuyardError(
            f"the dataset of {total_bytes / 1e9:.1f} GB cannot be written to {directory}: "
            f"{error.strerror}; write less with --size, or name an existing one with --dataset"
        ) from error


def _list_files(directory: Path) -> list[Path]:
    """List all files of a dataset that have at least one block."""
    files = sorted(p for p in directory.rglob("*") if p.is_file() and p.stat().st_size >= BLOCK)
    if not files:
        raise UserMistake(f"{directory} has no files of 1 MiB or more to read")
    return files


def _write(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for _ in range(size // BLOCK):
            file.write(os.urandom(BLOCK))
        file.flush()
        os.fsync(file.fileno())


def run_trial(
    plan: StoragePlan,
    files: Sequence[Path],
    bypass: CacheBypass,
    gpus: int,
    on_progress: Callable[[float], None] = lambda _fraction: None,
) -> Trial:
    """Emulate all GPUs at once; the first batch of each is not timed, as it cannot be prefetched."""
    steps = max(_MIN_STEPS, round(plan.seconds / plan.compute_seconds))
    workers = [_EmulatedGpu(plan, files, bypass, seed=index) for index in range(gpus)]
    for worker in workers:
        worker.start(steps)
    while any(worker.running for worker in workers):
        time.sleep(0.05)
        on_progress(sum(worker.done for worker in workers) / (steps * gpus))
    for worker in workers:
        worker.finish()
    seconds = max(worker.seconds for worker in workers)
    # the mean over GPUs, as MLPerf Storage reports it
    utilization = sum(steps * plan.compute_seconds / w.seconds for w in workers) / gpus
    return Trial(
        gpus=gpus,
        utilization=min(1.0, utilization),
        passed=utilization >= plan.min_utilization,
        samples_per_second=gpus * steps * plan.batch / seconds,
        bytes_per_second=gpus * steps * plan.batch_bytes / seconds,
        seconds=seconds,
    )


class _EmulatedGpu:
    """Fetches batches in one thread, and sleeps for the compute time of each in another."""

    def __init__(
        self, plan: StoragePlan, files: Sequence[Path], bypass: CacheBypass, seed: int
    ) -> None:
        self._plan, self._files, self._bypass = plan, files, bypass
        # one item per fetched batch: None, or the error that stopped fetching
        self._fetched: queue.Queue[BaseException | None] = queue.Queue(_PREFETCHED_BATCHES)
        self._random = random.Random(seed)
        self._error: BaseException | None = None
        self._threads: list[threading.Thread] = []
        self.seconds = 0.0
        self.done = 0

    @property
    def running(self) -> bool:
        return self._threads[0].is_alive()

    def start(self, steps: int) -> None:
        targets = [(self._compute, (steps,)), (self._fetch, (steps + 1,))]
        self._threads = [threading.Thread(target=t, args=a, daemon=True) for t, a in targets]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        for thread in self._threads:
            thread.join()
        if self._error is not None:
            raise self._error

    def _compute(self, steps: int) -> None:
        if not self._wait_for_batch():
            return
        start = time.perf_counter()
        for _ in range(steps):
            time.sleep(self._plan.compute_seconds)
            self.done += 1
            if not self._wait_for_batch():
                return
        self.seconds = time.perf_counter() - start

    def _wait_for_batch(self) -> bool:
        self._error = self._fetched.get()
        return self._error is None

    def _fetch(self, batches: int) -> None:
        """Fetch one batch after another, each with all readers at once."""
        reader_bytes = -(-self._plan.batch_bytes // self._plan.readers)
        for _ in range(batches):
            errors: list[BaseException] = []
            readers = [
                threading.Thread(
                    target=self._read,
                    args=(self._random.random(), reader_bytes, errors),
                    daemon=True,
                )
                for _ in range(self._plan.readers)
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            self._fetched.put(errors[0] if errors else None)
            if errors:
                return

    def _read(self, seed: float, size: int, errors: list[BaseException]) -> None:
        """Read consecutive bytes from a random block of a random file, and of more files if needed."""
        generator = random.Random(seed)
        remaining = size
        try:
            with allocate_buffer() as buffer:
                while remaining > 0:
                    path = generator.choice(self._files)
                    descriptor = open_file(path, self._bypass)
                    try:
                        blocks = os.fstat(descriptor).st_size // BLOCK
                        block = generator.randrange(blocks)
                        while remaining > 0 and block < blocks:
                            remaining -= os.preadv(descriptor, [buffer], block * BLOCK)
                            block += 1
                    finally:
                        os.close(descriptor)
        except OSError as error:
            errors.append(error)
