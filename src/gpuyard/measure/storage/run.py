"""The bench: the number of GPUs that was asked for, then the largest that still passes. In a trial each GPU has readers that
fetch batches ahead, and sleeps where it would compute."""

import contextlib
import os
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.measure.progress import ProgressUpdate, Tell
from gpuyard.measure.record import key_of, made_now, this_testbed
from gpuyard.measure.storage.cache import (
    BLOCK,
    TIMES_MEMORY,
    aligned_buffer,
    bypass_of,
    filesystem_of,
    open_file,
)
from gpuyard.measure.storage.plan import StoragePlan
from gpuyard.measure.storage.records import CacheBypass, StorageBench, Trial
from gpuyard.temporary import held_directory
from gpuyard.units import counted

_MOST_TIMES_ASKED = 8
_FEWEST_STEPS = 5
_AHEAD = 2  # batches that are fetched while one is computed


def run_storage(plan: StoragePlan, tell: Tell = lambda _progress: None) -> StorageBench:
    """Find the largest number of GPUs, unless the cache would answer for the storage."""
    with _dataset(plan, tell) as files:
        dataset_bytes = sum(path.stat().st_size for path in files)
        bypass = bypass_of(files, dataset_bytes)
        kind = filesystem_of(files[0])
        trials: tuple[Trial, ...] = ()
        reason = ""
        if bypass == "none":
            reason = (
                f"reads from {kind} can't bypass memory here, and the data set is smaller than "
                f"{TIMES_MEMORY} × memory: any speed would be that of memory"
            )
        else:
            try:
                trials = _search(plan, lambda n: run_trial(
                    plan, files, bypass, n, lambda f: tell(ProgressUpdate(counted(n, "GPU"), f, 1.0))
                ))  # fmt: skip
            except OSError as error:
                raise GpuyardError(f"{plan.path} could not be read: {error.strerror}") from error
    passed = [trial.gpus for trial in trials if trial.passed]
    enough = any(trial.gpus == plan.gpus and trial.passed for trial in trials)
    testbed = this_testbed()
    return StorageBench(
        **made_now(key_of({**plan.describe(), "host": testbed.fingerprint()})),
        host=testbed,
        path=str(plan.path),
        model=plan.model,
        gpu=plan.gpu,
        batch=plan.batch,
        compute_seconds=plan.compute_seconds,
        record_bytes=plan.record_bytes,
        least_utilisation=plan.least_utilisation,
        source=plan.source,
        filesystem=kind,
        dataset_bytes=dataset_bytes,
        own_dataset=plan.data is None,
        cache=bypass,
        asked_gpus=plan.gpus,
        trials=tuple(sorted(trials, key=lambda trial: trial.gpus)),
        verdict="refused" if reason else "passes" if enough else "starves",
        most_gpus=None if reason else max(passed, default=0),
        reason=reason,
    )


def _search(plan: StoragePlan, trial: Callable[[int], Trial]) -> tuple[Trial, ...]:
    """Double while it passes, up to 8 times what was asked for; then halve the gap."""
    trials = [trial(plan.gpus)]
    while trials[-1].passed and trials[-1].gpus < _MOST_TIMES_ASKED * plan.gpus:
        trials.append(trial(2 * trials[-1].gpus))
    low = max((t.gpus for t in trials if t.passed), default=0)
    high = min((t.gpus for t in trials if not t.passed), default=low + 1)
    while high - low > 1:
        tried = trial((low + high) // 2)
        trials.append(tried)
        low, high = (tried.gpus, high) if tried.passed else (low, tried.gpus)
    return tuple(trials)


@contextlib.contextmanager
def _dataset(plan: StoragePlan, tell: Tell) -> Iterator[list[Path]]:
    if plan.data is not None:
        yield _files_of(plan.data)
        return
    with own_files(
        plan.path,
        plan.own_bytes,
        plan.own_files,
        lambda fraction: tell(ProgressUpdate("writing a data set", fraction, 1.0)),
    ) as files:
        yield files


@contextlib.contextmanager
def own_files(
    directory: Path, total_bytes: int, files: int, on_written: Callable[[float], None]
) -> Iterator[list[Path]]:
    """Random bytes, which no disk can compress away; gone at the end, or after a kill with the next bench."""
    each = max(BLOCK, -(-total_bytes // files // BLOCK) * BLOCK)
    try:
        with held_directory(directory, "storage", hidden=True) as made:
            paths = [made / f"{index:04d}.bin" for index in range(files)]
            for index, path in enumerate(paths):
                _write(path, each)
                on_written((index + 1) / files)
            yield paths
    except OSError as error:
        raise GpuyardError(
            f"the data set of {total_bytes / 1e9:.1f} GB could not be written to {directory}: "
            f"{error.strerror}; ask for less with --size, or name one with --dataset"
        ) from error


def _files_of(directory: Path) -> list[Path]:
    """All files of a data set, large enough for a block at least."""
    found = sorted(p for p in directory.rglob("*") if p.is_file() and p.stat().st_size >= BLOCK)
    if not found:
        raise UserMistake(f"{directory} has no files of 1 MiB or more to read")
    return found


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
    """All GPUs at once; the first batch of each is not counted, since nothing could be fetched ahead."""
    steps = max(_FEWEST_STEPS, round(plan.seconds / plan.compute_seconds))
    workers = [_Gpu(plan, files, bypass, seed=index) for index in range(gpus)]
    for worker in workers:
        worker.start(steps)
    while any(worker.running for worker in workers):
        time.sleep(0.05)
        on_progress(sum(worker.done for worker in workers) / (steps * gpus))
    for worker in workers:
        worker.finish()
    seconds = max(worker.seconds for worker in workers)
    # the mean over GPUs, as MLPerf Storage reports it
    utilisation = sum(steps * plan.compute_seconds / w.seconds for w in workers) / gpus
    return Trial(
        gpus=gpus,
        utilisation=min(1.0, utilisation),
        passed=utilisation >= plan.least_utilisation,
        samples_per_second=gpus * steps * plan.batch / seconds,
        bytes_per_second=gpus * steps * plan.batch_bytes / seconds,
        seconds=seconds,
    )


class _Gpu:
    def __init__(
        self, plan: StoragePlan, files: Sequence[Path], bypass: CacheBypass, seed: int
    ) -> None:
        self._plan, self._files, self._bypass = plan, files, bypass
        self._ready: queue.Queue[BaseException | None] = queue.Queue(_AHEAD)
        self._chosen = random.Random(seed)
        self._fault: BaseException | None = None
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
        if self._fault is not None:
            raise self._fault

    def _compute(self, steps: int) -> None:
        if self._failed(self._ready.get()):
            return
        began = time.perf_counter()
        for _ in range(steps):
            time.sleep(self._plan.compute_seconds)
            self.done += 1
            if self._failed(self._ready.get()):
                return
        self.seconds = time.perf_counter() - began

    def _failed(self, said: BaseException | None) -> bool:
        self._fault = said
        return said is not None

    def _fetch(self, batches: int) -> None:
        """Batches one after the other, each by all readers at once."""
        share = -(-self._plan.batch_bytes // self._plan.readers)
        for _ in range(batches):
            faults: list[BaseException] = []
            readers = [
                threading.Thread(
                    target=self._read, args=(self._chosen.random(), share, faults), daemon=True
                )
                for _ in range(self._plan.readers)
            ]
            for reader in readers:
                reader.start()
            for reader in readers:
                reader.join()
            self._ready.put(faults[0] if faults else None)
            if faults:
                return

    def _read(self, start: float, size: int, faults: list[BaseException]) -> None:
        """So many bytes in a row from a random block of a random file on, through as many as it takes."""
        chosen = random.Random(start)
        left = size
        try:
            with aligned_buffer() as buffer:
                while left > 0:
                    path = chosen.choice(self._files)
                    descriptor = open_file(path, self._bypass)
                    try:
                        blocks = os.fstat(descriptor).st_size // BLOCK
                        block = chosen.randrange(blocks)
                        while left > 0 and block < blocks:
                            left -= os.preadv(descriptor, [buffer], block * BLOCK)
                            block += 1
                    finally:
                        os.close(descriptor)
        except OSError as error:
            faults.append(error)
