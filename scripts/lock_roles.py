"""Write the locked requirements of the Ansible roles `jupyter` and `mlflow`, with hashes, for Python 3.10 to 3.13.

The versions come from requirements/soak.in and dev.in. Jupyter and MLflow's client share the environment of the role
`training`, whose packages therefore go into a file of their own, which is only for machines without that role.
Run it with a Python of this project that has uv: python scripts/lock_roles.py
"""

import re
import subprocess
import tempfile
from pathlib import Path

from gpuyard.deploy.stack.environments import describe_environments
from gpuyard.deploy.stack.lock import read_lock

ROOT = Path(__file__).parents[1]
ROLES = ROOT / "src/gpuyard/deploy/ansible/roles"
HEAD = (
    "# Written by scripts/lock_roles.py. pip needs --no-deps --require-hashes --only-binary :all:\n"
)
OLDEST_PYTHON = "3.10"  # of Ubuntu 22.04
SHARED = ("jupyterlab", "jupyterhub", "mlflow-skinny")
_REQUIREMENT = re.compile(r"^(?=[a-z0-9])", re.MULTILINE)


def main() -> None:
    pins = _read_pins()
    together = _lock([pins[name] for name in SHARED])  # one set of versions for the environment
    training = _list_training_packages()
    lab = {_parse_name(line) for line in _lock([pins["jupyterlab"]], together)}
    jupyter = _lock([pins["jupyterlab"], pins["jupyterhub"]], together)
    client = _lock([pins["mlflow-skinny"]], together)
    for file, wanted in (
        ("jupyterlab", lab - training),
        ("jupyterhub", {_parse_name(line) for line in jupyter} - lab - training),
        ("without-training", training),
    ):
        _write("jupyter", file, _select(jupyter, wanted))
    _write("mlflow", "client", _select(client, {_parse_name(line) for line in client} - training))
    _write("mlflow", "server", _lock([pins["mlflow"]]))


def _read_pins() -> dict[str, str]:
    """Return the pinned requirement of each package that the tests use too."""
    lines = [
        line
        for name in ("dev", "soak")
        for line in (ROOT / f"requirements/{name}.in").read_text(encoding="utf-8").splitlines()
        if "==" in line
    ]
    return {_parse_name(line): line for line in lines}


def _list_training_packages() -> set[str]:
    described = describe_environments(read_lock(), "pytorch", horovod=False)
    (environment,) = described["training_environments"]
    return {_parse_name(pin) for kind in ("gpu", "cpu") for pin in environment[kind]}


def _lock(pins: list[str], constraints: dict[str, str] | None = None) -> dict[str, str]:
    """Return uv's resolution for every supported Python: each requirement with its marker, and the lines of its hashes."""
    with tempfile.TemporaryDirectory() as directory:
        source, limits = Path(directory, "source.in"), Path(directory, "limits.txt")
        source.write_text("".join(f"{pin}\n" for pin in pins), encoding="utf-8")
        limits.write_text("".join(f"{line}\n" for line in constraints or ()), encoding="utf-8")
        command = ("uv", "pip", "compile", "--quiet", "--no-config", "--universal")
        options = ("--python-version", OLDEST_PYTHON, "--generate-hashes", "--only-binary=:all:")
        plain = ("--no-annotate", "--no-header", "--default-index=https://pypi.org/simple")
        argv = (*command, *options, *plain, "--constraints", str(limits), str(source))
        text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    entries = (entry.partition(" \\\n") for entry in _REQUIREMENT.split(text) if entry.strip())
    return {line: hashes for line, _, hashes in entries}


def _select(requirements: dict[str, str], names: set[str]) -> dict[str, str]:
    return {line: each for line, each in requirements.items() if _parse_name(line) in names}


def _parse_name(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", requirement.partition("==")[0].strip()).lower()


def _write(role: str, name: str, requirements: dict[str, str]) -> None:
    text = "".join(f"{line} \\\n{hashes}" for line, hashes in sorted(requirements.items()))
    folder = ROLES / role / "files"
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.txt").write_text(HEAD + text, encoding="utf-8")


if __name__ == "__main__":
    main()
