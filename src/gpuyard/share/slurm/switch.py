"""The hand-over of this machine's GPUs between gpuyard's leases and Slurm, which never own them at the same time.

Both directions first stop the old owner from giving GPUs away, then check that it has given none, and only then let the
new owner start. If a hand-over is interrupted, neither gives GPUs away until it is repeated.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from gpuyard.errors import GpuyardError, NoResponse
from gpuyard.share.client import LocalClient, is_owner
from gpuyard.share.config import ShareConfig, lock_config, read_config
from gpuyard.share.ownership import list_own_nodes, slurm_is_set_up
from gpuyard.share.slurm.jobs import check_slurm
from gpuyard.slurm.gpu_jobs import list_gpu_jobs
from gpuyard.slurm.nodes import (
    GpuNode,
    drain_node,
    expand_hostnames,
    list_gpu_nodes,
    resume_node,
)

DRAIN_REASON = "gpuyard leases the GPUs of this node"


def use_slurm(directory: Path) -> None:
    """Lease with srun from now on; refuse while GPUs are leased, because Slurm does not know these leases."""
    with _own_config(directory) as config:
        check_slurm()
        if config.scheduler != "slurm":
            _stop_leasing(directory, config)
        for node in list_own_nodes():
            if node.reason.startswith(DRAIN_REASON):
                resume_node(node.name)


def use_local(directory: Path) -> None:
    """Lease with gpuyard's own scheduler again; refuse while Slurm jobs have GPUs, or if Slurm does not say so."""
    with _own_config(directory) as config:
        try:
            drained = _drain_own_nodes() if slurm_is_set_up() else []
        except NoResponse as error:
            raise GpuyardError(
                f"{error}. Slurm may have given GPUs to jobs, and would do so again once it is back. If Slurm was "
                "removed from this machine, also remove its slurm.conf"
            ) from error
        _check_no_jobs(drained, config)
        changed = replace(config, scheduler="local", slurm_drained=slurm_is_set_up())
        if changed != config:
            changed.write(directory)


def _check_no_jobs(drained: Sequence[GpuNode], config: ShareConfig) -> None:
    """Raise GpuyardError if jobs have GPUs of these nodes; if Slurm owns them, the nodes then accept jobs again."""
    try:
        if jobs := _find_own_jobs() if drained else []:
            raise GpuyardError(
                f"Slurm jobs use GPUs or wait for them ({', '.join(jobs)}); wait until they finish, or cancel them with "
                "scancel"
            )
    except GpuyardError:
        if config.scheduler == "slurm":  # Slurm stays the owner
            for node in drained:
                resume_node(node.name)
        raise


def _stop_leasing(directory: Path, config: ShareConfig) -> None:
    """Make Slurm the owner in the transaction that finds no lease: a request comes before it or is refused after it."""
    client = LocalClient(directory)
    try:
        client.state()  # records the end of dead leases
        with client.broker.store.transaction():
            leases = client.broker.store.active_leases()
            if not leases:
                replace(config, scheduler="slurm", slurm_drained=False).write(directory)
    finally:
        client.close()
    if leases:
        users = sorted({lease.user for lease in leases})
        raise GpuyardError(
            f"leases of {', '.join(users)} hold or wait for GPUs, which Slurm would hand out a second time; wait until "
            "they end, as shown by: gpuyard who"
        )


def _drain_own_nodes() -> list[GpuNode]:
    """Let Slurm start no more jobs on this machine; return its nodes that are drained for this."""
    nodes = list_own_nodes()
    for node in nodes:
        if node.accepts_jobs:
            drain_node(node.name, DRAIN_REASON)
    return [node for node in nodes if node.accepts_jobs or node.reason.startswith(DRAIN_REASON)]


def _find_own_jobs() -> list[str]:
    """Find the jobs with GPUs of this machine, and those that wait if Slurm has no other GPUs."""
    own = {node.name for node in list_own_nodes()}
    only_here = all(node.name in own for node in list_gpu_nodes())
    return [
        str(job.job_id)
        for job in list_gpu_jobs()
        if (only_here if job.waits else own & set(expand_hostnames(job.nodes)))
    ]


@contextmanager
def _own_config(directory: Path) -> Iterator[ShareConfig]:
    """Read the configuration, which nobody else changes in the meantime."""
    read_config(directory)  # Its error explains how to set up a share.
    if not is_owner(directory):
        raise GpuyardError(f"only the owner of {directory} can change its scheduler")
    with lock_config(directory):
        yield read_config(directory)
