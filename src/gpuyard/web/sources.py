"""The sources of the Now view: this machine's share, a Slurm cluster, and the machines of deployments.

A source's document has one `gpuyard who` document for each of its machines.
"""

import contextlib
import os
from functools import partial
from pathlib import Path
from typing import Any

from gpuyard.web.sampling import Sampler
from gpuyard.web.settings import WebSettings

_SLURM_SECONDS = 10.0  # all users share Slurm's controller
_SSH_SECONDS = 15.0


def create_sources(settings: WebSettings) -> list[Sampler]:
    """Return one sampler for each source."""
    sources = []
    if not (settings.slurm or settings.deployments) or has_own_share():
        sources.append(Sampler(os.uname().nodename, read_own_share))
    if settings.slurm:
        sources.append(Sampler("Slurm", read_slurm, _SLURM_SECONDS, is_slow=True))
    for file in settings.deployments:
        path = Path(file).absolute()
        sources.append(
            Sampler(path.name, partial(read_deployment, path), _SSH_SECONDS, is_slow=True)
        )
    return sources


def has_own_share() -> bool:
    """Return whether the GPUs of this machine are shared."""
    from gpuyard.share.config import is_set_up, share_directory

    return is_set_up(share_directory())


def read_own_share() -> dict[str, Any]:
    """Read the GPUs and leases of this machine as this user."""
    from gpuyard.api.share import read_share
    from gpuyard.share.client import open_reader
    from gpuyard.share.config import ALL
    from gpuyard.share.usage import cloud_price

    client = open_reader()
    with contextlib.closing(client):
        document = read_share(client)
        price = cloud_price(client.config)
        return {
            "machines": {os.uname().nodename: document},
            "commands_visible": client.config.rules.commands == ALL,
            "usd_per_gpu_hour": price.usd_per_gpu_hour if price else None,
            "can_release": True,
        }


def read_slurm() -> dict[str, Any]:
    """Read the nodes and jobs of the Slurm cluster; Slurm shows the names of all jobs to everyone."""
    from gpuyard.api.cluster_state import read_slurm_nodes

    return {"machines": read_slurm_nodes(), "commands_visible": True, "usd_per_gpu_hour": None}


def read_deployment(file: Path) -> dict[str, Any]:
    """Read the machines of a deployment over ssh."""
    from gpuyard.api.cluster_state import read_deployment_nodes

    return {
        "machines": read_deployment_nodes(file),
        "commands_visible": True,
        "usd_per_gpu_hour": None,
    }
