"""Files that roles write, read by the programs that they are for."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.deploy.rendered import rendered

STARTED = ("opt/gpuyard/venv/bin/python", "opt/gpuyard/venv/bin/jupyterhub", "usr/sbin/nft")
EXPORTER = """[Unit]
Description=As NVIDIA's package brings it
[Service]
ExecStart=/usr/sbin/nft
"""


def _run(argv: Sequence[str | Path]) -> "subprocess.CompletedProcess[str]":
    if shutil.which(argv[0]) is None:
        pytest.skip(f"{argv[0]} is not installed")
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("ansible_runner")
    return rendered(tmp_path_factory.mktemp("rendered"))


def test_systemd_finds_nothing_wrong_with_our_units(root: Path) -> None:
    units = root / "etc/systemd/system"
    written = sorted(path.name for path in units.iterdir())
    assert written == [
        "gpuyard-firewall.service",
        "gpuyard-jupyter.service",
        "gpuyard-jupyterhub.service",
        "nvidia-dcgm-exporter.service.d",
    ]
    shutil.copytree("/lib/systemd/system", root / "lib/systemd/system", symlinks=True)
    for path in STARTED:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("#!/bin/sh\n")
        (root / path).chmod(0o755)
    (units / "nvidia-dcgm-exporter.service").write_text(EXPORTER)
    ours = [units / name for name in written if name.endswith(".service")]
    ours.append(units / "nvidia-dcgm-exporter.service")
    for unit in ours:
        found = _run(("systemd-analyze", "verify", "--man=no", f"--root={root}", unit.name))
        assert (found.returncode, found.stderr) == (0, ""), unit.read_text()
        unit.write_text(unit.read_text().replace("[Service]", "[Service]\nRestrat=on-failure"))
        found = _run(("systemd-analyze", "verify", "--man=no", f"--root={root}", unit.name))
        assert "Restrat" in found.stderr  # it does read them
