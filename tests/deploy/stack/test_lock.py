"""The lock: its versions are compatible, and a user's own lock is checked before anything is installed."""

import json
from pathlib import Path

import pytest

from gpuyard.deploy.stack.lock import find_conflicts, parse_version, read_lock, read_shipped_text
from gpuyard.errors import SpecError
from tests.conftest import Cli


def write_lock(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    text = read_shipped_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "own.toml"
    path.write_text(text)
    return path


def test_the_shipped_lock_is_consistent() -> None:
    lock = read_lock()
    assert find_conflicts(lock) == []
    parts = (lock.driver, lock.cuda, lock.docker, lock.container_toolkit, lock.horovod)
    assert all(part.source.startswith("https://") for part in (*parts, *lock.frameworks.values()))


def test_versions_are_compared_by_number() -> None:
    assert parse_version("580.95.05") > parse_version("580") > parse_version("99.9")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('version = "580"', 'version = "570"', "needs driver 580, and the driver is 570"),
        ("torch==2.13.0+cpu", "torch==2.12.0+cpu", "torch==2.12.0+cpu"),
        ("nvidia-nccl-cu13==2.29.7", "nvidia-nccl-cu13==2.28.9", "gpu_requirements pin another"),
        ('cuda = "13.0"', 'cuda = "13.2"', "PyTorch is built for 13.2"),
        ("numpy==2.4.6", "numpy>=2", "expected a requirement like numpy==2.4.6"),
        ("numpy==2.4.6", "numpy==2.4.6 --index-url=http://x", "expected a requirement"),
        ('package = "docker.io"', 'package = "docker.io; reboot"', "a package name"),
        ("https://download.pytorch.org/whl/cpu", "http://example.org", "https://"),
        ('name = "2026.11"', "name =", "not TOML"),
        ("[frameworks.mxnet]", "[frameworks.jax]", "pytorch"),
    ],
)
def test_a_lock_that_does_not_fit_is_refused(
    cli: Cli, tmp_path: Path, old: str, new: str, expected: str
) -> None:
    path = write_lock(tmp_path, (old, new))
    done = cli("stack", "lock", "--lock", str(path), status=2)
    assert expected in done.stderr
    assert str(path) in done.stderr


def test_a_lock_of_ones_own_begins_as_a_copy(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    cli("stack", "lock", "--output", str(path))
    path.write_text(path.read_text().replace('name = "2026.11"', 'name = "ours"'))
    document = json.loads(cli("stack", "lock", "--lock", str(path), "--json").stdout)
    assert document["name"] == "ours"
    assert document["frameworks"]["pytorch"]["cuda"] == "13.0"


def test_requirements_are_of_a_machine_with_or_without_a_gpu(cli: Cli) -> None:
    with_gpu = cli("stack", "lock", "--requirements", "pytorch").stdout.splitlines()
    without = cli("stack", "lock", "--requirements", "pytorch", "--cpu-only").stdout.splitlines()
    assert "torch==2.13.0" in with_gpu
    assert "nvidia-nccl-cu13==2.29.7" in with_gpu
    assert "torch==2.13.0+cpu" in without
    assert "--extra-index-url https://download.pytorch.org/whl/cpu" in without
    assert not any(line.startswith("nvidia-") for line in without)


def test_an_unknown_framework_and_a_lone_option_are_mistakes(cli: Cli) -> None:
    assert "pytorch" in cli("stack", "lock", "--requirements", "pytorc", status=2).stderr
    assert "--requirements" in cli("stack", "lock", "--cpu-only", status=2).stderr


def test_a_key_of_very_many_parts_is_not_even_parsed(tmp_path: Path) -> None:
    """The standard library's reader takes the square of their number: minutes for a megabyte."""
    path = tmp_path / "lock.toml"
    path.write_text("-.inf" * 200_000)
    with pytest.raises(SpecError, match="larger than"):
        read_lock(path)
