"""Check whether Slurm can be used from here, without the imports of the engine."""

from gpuyard.errors import GpuyardError, NoResponse
from gpuyard.jobs.engines.base import Availability
from gpuyard.share.ownership import is_this_machine, leases_own_gpus
from gpuyard.slurm import client

_PROGRAMS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo")
_NOT_THE_OWNER = (
    "leases own the GPUs of this machine, and Slurm has no others; an admin gives them to Slurm with: "
    "gpuyard share use slurm"
)


def check_availability() -> Availability:
    """Return whether Slurm's programs are installed and its controller answers."""
    if (missing := client.find_missing_program(*_PROGRAMS)) is not None:
        return Availability(ok=False, reason=f"{missing} is not on the PATH")
    try:
        client.read_config()
        if leases_own_gpus() and _has_no_other_gpus():
            return Availability(ok=True, refuses=_NOT_THE_OWNER)
    except GpuyardError as error:
        return Availability(ok=False, reason=str(error), down=isinstance(error, NoResponse))
    return Availability(ok=True)


def _has_no_other_gpus() -> bool:
    from gpuyard.slurm.nodes import list_gpu_nodes

    return all(is_this_machine(node) for node in list_gpu_nodes())
