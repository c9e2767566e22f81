"""Whether collectives can be run over MPI here."""

import importlib.util
import shutil

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.measure.places import Here, Place


def check_mpi(place: Place) -> None:
    """Raises with what is missing."""
    if not isinstance(place, Here):
        raise UserMistake("MPI is run on this machine only; leave out --lab, --hosts and --slurm")
    if importlib.util.find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
        raise MissingRequirement(
            "MPI needs mpi4py and an MPI with mpiexec: pip install mpi4py mpich; gloo works without"
        )
