"""Whether collectives can be run over MPI here, and how its ranks are started."""

import importlib.util
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.run.places import Place

MPI_WORKER = "gpuyard.measure.collectives.mpi_worker"


def check_mpi(place: Place) -> None:
    """Raises with what is missing."""
    if place.meeting is not None:  # mpiexec starts ranks on this machine
        raise UserMistake("MPI is run on this machine only; leave out --lab, --hosts and --slurm")
    if importlib.util.find_spec("mpi4py") is None or _mpiexec() is None:
        raise MissingRequirement(
            "MPI needs mpi4py and an MPI with mpiexec: pip install mpi4py mpich; gloo works without"
        )


def under_mpiexec(ranks: int, argv: Sequence[str]) -> list[str]:
    """One command for all ranks: mpiexec starts them, and hands stdin to the first."""
    return [_mpiexec() or "mpiexec", "-n", str(ranks), *argv]


def _mpiexec() -> str | None:
    # a wheel puts it beside the Python that it was installed for
    return shutil.which("mpiexec") or shutil.which("mpiexec", path=Path(sys.executable).parent)
