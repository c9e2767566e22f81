"""The owner of this machine's GPUs: gpuyard's leases or Slurm, never both at once.

The configuration of the share names the owner. As long as leases own the GPUs, Slurm's node for this machine must not
accept jobs; `gpuyard share use` drains and resumes it.
"""

import os
import shutil
import socket
import time
from typing import TYPE_CHECKING

from gpuyard.errors import GpuyardError
from gpuyard.share.config import (
    ShareConfig,
    is_set_up,
    own_directory,
    read_config,
    share_directory,
)

if TYPE_CHECKING:
    from gpuyard.slurm.nodes import GpuNode

_CONFIGURATIONS = (
    "/etc/slurm/slurm.conf",
    "/run/slurm/conf/slurm.conf",
    "/usr/local/etc/slurm.conf",
)
_CHECK_SECONDS = 10.0  # between two questions to Slurm
_next_check = 0.0


def slurm_is_set_up() -> bool:
    """Return whether this machine has Slurm's configuration, without asking Slurm."""
    named = os.environ.get("SLURM_CONF")
    paths = (named,) if named else _CONFIGURATIONS
    is_configured = any(os.path.exists(path) for path in paths)  # noqa: PTH110
    return is_configured and shutil.which("scontrol") is not None


def is_this_machine(node: "GpuNode") -> bool:
    full = socket.gethostname()
    return bool({full, full.partition(".")[0]} & {node.name, node.host})


def list_own_nodes() -> list["GpuNode"]:
    """List Slurm's nodes with GPUs that are this machine."""
    from gpuyard.slurm.nodes import list_gpu_nodes

    return [node for node in list_gpu_nodes() if is_this_machine(node)]


def find_serving_node() -> str | None:
    """Return Slurm's node for this machine if Slurm can start jobs on its GPUs now; raise GpuyardError if it is silent."""
    if not slurm_is_set_up():
        return None
    from gpuyard.slurm.client import run

    run("scontrol", "ping")  # fails at once if no controller runs, unlike other commands
    return next((node.name for node in list_own_nodes() if node.accepts_jobs), None)


def find_conflict(config: ShareConfig) -> str | None:
    """Describe a second owner of GPUs that leases own; None if there is none."""
    if config.scheduler != "local" or "SLURM_JOB_ID" in os.environ:  # a job may lease what it has
        return None
    try:
        node = find_serving_node()
    except GpuyardError:
        if config.slurm_drained:
            return None
        return (
            "Slurm is set up on this machine but does not answer, and its jobs may still use the GPUs. Start Slurm's "
            "controller (check it with: scontrol ping); then an admin gives the GPUs to one owner: `gpuyard share use "
            "slurm`, or `gpuyard share use local`. If Slurm was removed from this machine, also remove its slurm.conf"
        )
    return node and (
        f"Slurm also hands out the GPUs of this machine, as its node {node}. An admin gives them to one owner: "
        "`gpuyard share use slurm`, or `gpuyard share use local`"
    )


def check_sole_owner(config: ShareConfig) -> None:
    """Raise GpuyardError if Slurm could give the same GPUs to a job; ask Slurm only every few seconds."""
    global _next_check  # noqa: PLW0603
    if config.scheduler != "local" or time.monotonic() < _next_check:
        return
    if conflict := find_conflict(config):
        raise GpuyardError(f"no GPU is leased: {conflict}")
    _next_check = time.monotonic() + _CHECK_SECONDS


def leases_own_gpus() -> bool:
    """Return whether the GPUs of this machine belong to the leases of all its users."""
    directory = share_directory()
    if directory == own_directory() or not is_set_up(directory):
        return False
    try:
        return read_config(directory).scheduler == "local"
    except GpuyardError:
        return False
