"""Host entries in the user's own ssh configuration, for ssh itself and for the editors that read it.

One file for each deployment in a directory of ours under `~/.ssh`, and one line in the user's configuration that
includes that directory. Nothing else there is read or changed, and the last file that goes takes the line along.
"""

from pathlib import Path

from gpuyard import files
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.errors import GpuyardError


def entries(state: StateDirectory, hosts: tuple[Host, ...]) -> str:
    """Every machine as DEPLOYMENT-MACHINE: other deployments have a node0, too."""
    return state.ssh_entries(hosts, prefix=f"{state.name}-")


def entries_file(state: StateDirectory) -> Path:
    return _directory() / f"{state.name}.conf"


def write_entries(state: StateDirectory, hosts: tuple[Host, ...]) -> Path:
    """Into a file of its own, which the user's configuration includes; a second time changes nothing."""
    path, config = entries_file(state), _config()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise GpuyardError(f"{path.parent} can't be made: {error.strerror}") from error
    files.write_text(path, entries(state, hosts), mode=0o600)
    there = _text(config)
    if _include() not in there.splitlines():
        # first, because it would belong to the entry that it stands below
        files.write_text(config, f"{_include()}\n{there}", mode=0o600)
    return path


def remove_entries(state: StateDirectory) -> bool:
    """Those of this deployment; False where there were none."""
    path, config = entries_file(state), _config()
    if not path.exists():
        return False
    path.unlink()
    if list(path.parent.iterdir()):
        return True
    path.parent.rmdir()
    there = _text(config)
    rest = there.replace(f"{_include()}\n", "", 1)
    if rest:
        files.write_text(config, rest, mode=0o600)
    elif there:
        config.unlink()  # it had our line only
    return True


def _text(config: Path) -> str:
    return files.read_text(config) if config.exists() else ""


def _include() -> str:
    return f'Include "{_directory()}/*.conf"'


def _config() -> Path:
    return Path.home() / ".ssh" / "config"


def _directory() -> Path:
    return Path.home() / ".ssh" / "gpuyard"
