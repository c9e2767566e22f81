"""One trial: each GPU has readers that fetch batches ahead, and sleeps where it would compute."""

import os
import queue
import random
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuyard.measure.storage.cache import BLOCK, aligned_buffer, open_file
from gpuyard.measure.storage.plan import StoragePlan
from gpuyard.measure.storage.records import CacheBypass, Trial

_FEWEST_STEPS = 5
_AHEAD = 2  # batches that are fetched while one is computed


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
