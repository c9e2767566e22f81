"""Where a share is: `$GPUYARD_SHARE_DIR`, else the machine's where one was set up, else the user's own."""

import os
from pathlib import Path

from gpuyard import files
from gpuyard.share.store.config import config_file

MACHINE = Path("/var/lib/gpuyard")
SOCKET = "lease.socket"


def share_directory() -> Path:
    """The one that this process uses."""
    named = os.environ.get("GPUYARD_SHARE_DIR")
    if named:
        return Path(named).expanduser().absolute()
    if config_file(MACHINE).exists():
        return MACHINE
    return own_directory()


def own_directory() -> Path:
    """One person's, who needs neither root nor a service. By machine: where several share a home, each has its GPUs."""
    return files.home() / "share" / os.uname().nodename


def setup_directory() -> Path:
    """Where `share setup` makes one."""
    if os.environ.get("GPUYARD_SHARE_DIR"):
        return share_directory()
    return MACHINE if os.geteuid() == 0 else own_directory()
