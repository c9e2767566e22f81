"""A deployment's machines as a place to run, with the Python environment of the role `training`."""

from collections.abc import Sequence
from typing import TypeVar

from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.run.places.hosts import Hosts

PYTHON = "/opt/gpuyard/venv/bin/python"
_Place = TypeVar("_Place", bound=Hosts)


def create_place(
    loaded: LoadedDeployment, hosts: Sequence[Host], kind: type[_Place], directory: str = "/"
) -> _Place:
    """Return the place; commands there start in `directory`."""
    installed = loaded.target.environment(loaded.deployment) is None
    return kind(
        tuple(host.name for host in hosts),
        ssh_config=loaded.state.ssh_config,
        python=PYTHON if installed else None,
        directory=directory,
    )
