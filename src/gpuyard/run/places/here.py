"""Workers as processes of this machine, each with as many cores as the others."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuyard.errors import UserMistake
from gpuyard.hardware.cpu import usable_cores
from gpuyard.run.places.place import Cores, RunPlace


@dataclass(frozen=True)
class Here:
    """This machine; its ranks meet through a file and talk over loopback."""

    dilation: float = 1.0
    stop_signal: signal.Signals = signal.SIGKILL

    def cores_by_worker(self, most_workers: int, *, computing: bool) -> Cores:
        cores = usable_cores()
        if most_workers <= len(cores):
            each = len(cores) // most_workers
            return tuple(cores[i * each : (i + 1) * each] for i in range(most_workers))
        if computing:
            raise UserMistake(
                f"{most_workers} workers need {most_workers} cores, this machine lets gpuyard use "
                f"{len(cores)}; ask for at most {len(cores)} workers"
            )
        return tuple((cores[i % len(cores)],) for i in range(most_workers))

    def identity(self) -> None:
        return None

    def command(self, rank: int, argv: Sequence[str], processes: int) -> Sequence[str]:  # noqa: ARG002
        return argv

    def environment(self, rank: int, processes: int) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def meeting(self) -> None:
        return None

    def record(self, workers: int) -> RunPlace:  # noqa: ARG002
        return RunPlace()
