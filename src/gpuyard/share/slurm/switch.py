"""Which scheduler gives GPUs out: gpuyard's own or Slurm. Never both at a time."""

from dataclasses import replace
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.files import write_text
from gpuyard.share.service.desk import OwnDesk, is_ours
from gpuyard.share.slurm import jobs
from gpuyard.share.store.config import ShareConfig, config_file, read_config


def use_slurm(directory: Path) -> None:
    """Leases go through srun from now on; refused while GPUs are leased, which Slurm does not know of."""
    config = _changeable(directory)
    if config.scheduler == "slurm":
        return
    jobs.check_answers()
    _write(directory, replace(config, scheduler="slurm"))  # first: nobody leases while it is looked
    desk = OwnDesk(directory)
    try:
        state = desk.state()
    finally:
        desk.close()
    if state.held or state.waiting:
        _write(directory, config)
        users = sorted({lease.user for lease in (*state.held, *state.waiting)})
        raise GpuyardError(
            f"{', '.join(users)} still {'hold or wait' if len(users) > 1 else 'holds or waits'} for leased "
            "GPUs, which Slurm would give away a second time; let these leases end first: gpuyard who"
        )


def use_local(directory: Path) -> str | None:
    """Leases are gpuyard's own again; refused while Slurm's jobs have GPUs. What could not be looked at is said."""
    config = _changeable(directory)
    if config.scheduler == "local":
        return None
    caveat = None
    try:
        running = [job["JobId"] for job in jobs.gpu_jobs()]
    except GpuyardError as error:
        running = []
        caveat = f"Slurm was not asked whether jobs of it still run: {error}"
    if running:
        raise GpuyardError(
            f"jobs of Slurm have GPUs or wait for them ({', '.join(running)}); let them end, or end them "
            "with scancel, first"
        )
    _write(directory, replace(config, scheduler="local"))
    return caveat


def _changeable(directory: Path) -> ShareConfig:
    config = read_config(directory)
    if not is_ours(directory):
        raise GpuyardError(f"only the owner of {directory} can change what gives its GPUs out")
    return config


def _write(directory: Path, config: ShareConfig) -> None:
    write_text(config_file(directory), config.text(), mode=0o644)
