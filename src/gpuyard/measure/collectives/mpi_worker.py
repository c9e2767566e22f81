"""An MPI rank of a bench of collectives: under mpiexec, `python -m gpuyard.measure.collectives.mpi_worker`.

Only rank 0 has a stdin and a stdout that anybody reads; it tells the others what the job is.
"""

import os
import threading
import time

from gpuyard.measure.collectives.mpi_group import MpiGroup
from gpuyard.measure.collectives.records import CollectivesJob
from gpuyard.measure.collectives.worker import time_all
from gpuyard.run.rank_process import Emit, serve

_LOOK_SECONDS = 0.5


def main() -> None:
    """Run one job and exit."""
    threading.Thread(target=_leave_with_mpiexec, args=(os.getppid(),), daemon=True).start()
    group = MpiGroup()

    def lead(job: CollectivesJob, emit: Emit) -> None:
        group.tell(job.model_dump_json())
        time_all(job, group, emit)

    if group.rank == 0:
        serve(CollectivesJob, lead, at_end=group.leave)
    else:
        time_all(CollectivesJob.model_validate_json(group.tell("")), group, lambda _event: None)
        group.leave()
        os._exit(0)  # at once: mpiexec kills who is still leaving when rank 0 has gone


def _leave_with_mpiexec(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main()
