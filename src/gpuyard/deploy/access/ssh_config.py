"""Host entries in the user's own ssh configuration, for ssh itself and for the editors that read it.

Each deployment has one file in `~/.ssh/gpuyard`, and one line in the user's configuration includes that directory.
Nothing else there is read or changed. Removing the last file also removes the line.
"""

from collections.abc import Sequence
from pathlib import Path

from gpuyard import files
from gpuyard.deploy.state import Host, StateDirectory
from gpuyard.errors import GpuyardError


def render_entries(
    state: StateDirectory, hosts: tuple[Host, ...], people: Sequence[str] = ()
) -> str:
    """Name every machine DEPLOYMENT-MACHINE, because other deployments have a node0 too.

    Each person has entries named DEPLOYMENT-MACHINE-PERSON, which use the person's own key.
    """
    text = state.render_ssh_config(hosts, prefix=f"{state.name}-")
    return text + "".join(_render_for(person, text) for person in people)


def _render_for(person: str, text: str) -> str:
    lines = []
    for line in text.splitlines():
        keyword, _, value = line.strip().partition(" ")
        if keyword in ("Host", "ProxyJump"):
            lines.append(f"{line}-{person}")
        elif keyword == "User":
            lines.append(line.replace(value, person))
        elif keyword not in ("IdentityFile", "IdentitiesOnly"):
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)


def entries_file(state: StateDirectory) -> Path:
    return _directory() / f"{state.name}.conf"


def write_entries(
    state: StateDirectory, hosts: tuple[Host, ...], people: Sequence[str] = ()
) -> Path:
    """Write the deployment's file and include it in the user's configuration; repeating it changes nothing."""
    path, config = entries_file(state), _config()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise GpuyardError(f"cannot create {path.parent}: {error.strerror}") from error
    files.write_text(path, render_entries(state, hosts, people), mode=0o600)
    text = _read(config)
    if _include() not in text.splitlines():
        # At the top, because below a Host entry it would belong to that entry.
        files.write_text(config, f"{_include()}\n{text}", mode=0o600)
    return path


def remove_entries(state: StateDirectory) -> bool:
    """Remove the deployment's entries; return False if it had none."""
    path, config = entries_file(state), _config()
    if not path.exists():
        return False
    path.unlink()
    if list(path.parent.iterdir()):
        return True
    path.parent.rmdir()
    text = _read(config)
    rest = text.replace(f"{_include()}\n", "", 1)
    if rest:
        files.write_text(config, rest, mode=0o600)
    elif text:
        config.unlink()  # it contained only the include line
    return True


def _read(config: Path) -> str:
    return files.read_text(config) if config.exists() else ""


def _include() -> str:
    return f'Include "{_directory()}/*.conf"'


def _config() -> Path:
    return files.expand_home("~/.ssh/config")


def _directory() -> Path:
    return files.expand_home("~/.ssh/gpuyard")
