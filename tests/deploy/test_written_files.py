"""Files that roles write, checked by the programs that read them."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuyard.lab.machine_root import make_root
from tests.conftest import LAB_ROOTS, MACHINE
from tests.deploy.rendering import render_files
from tests.deploy.systemd_machine import PACKAGES

STARTED = (
    "opt/gpuyard/mlflow/bin/python",
    "opt/gpuyard/venv/bin/python",
    "opt/gpuyard/venv/bin/jupyterhub",
    "usr/sbin/nft",
    "usr/sbin/shutdown",
)
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
    return render_files(tmp_path_factory.mktemp("rendered"))


def test_systemd_finds_nothing_wrong_with_our_units(root: Path) -> None:
    units = root / "etc/systemd/system"
    written = sorted(path.name for path in units.iterdir())
    assert written == [
        "gpuyard-expiry.service",
        "gpuyard-expiry.timer",
        "gpuyard-firewall.service",
        "gpuyard-jupyter.service",
        "gpuyard-jupyterhub.service",
        "gpuyard-mlflow.service",
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
    timer = units / "gpuyard-expiry.timer"
    assert "OnCalendar=2027-01-15 08:00:00 UTC\n" in timer.read_text()
    done = _run(("systemd-analyze", "verify", "--man=no", f"--root={root}", timer.name))
    assert (done.returncode, done.stderr) == (0, "")
    for unit in ours:
        done = _run(("systemd-analyze", "verify", "--man=no", f"--root={root}", unit.name))
        assert (done.returncode, done.stderr) == (0, ""), unit.read_text()
        unit.write_text(unit.read_text().replace("[Service]", "[Service]\nRestrat=on-failure"))
        done = _run(("systemd-analyze", "verify", "--man=no", f"--root={root}", unit.name))
        assert "Restrat" in done.stderr  # it does read them


CHECKED_BY = (
    "exportfs -ra && exportfs -s",
    "nfsconf --get nfsd vers3",
    "promtool check config /etc/prometheus/prometheus.yml",
    "mkdir -p /run/sshd && ssh-keygen -A && sshd -t -f /etc/ssh/sshd_config.d/10-gpuyard.conf",
    "nft --check --file /etc/gpuyard/firewall.nft",
    "chronyd -p -f /etc/chrony/chrony.conf",
)
BROKEN = {
    "etc/exports.d/gpuyard.exports": ("no_subtree_check", "no_subtree_chekc"),
    "etc/prometheus/prometheus.yml": ("scrape_configs", "scrape_confgis"),
    "etc/ssh/sshd_config.d/10-gpuyard.conf": ("LoginGraceTime", "LoginGraceTiem"),
    "etc/gpuyard/firewall.nft": ("policy drop", "policy dorp"),
}


@MACHINE
@pytest.mark.soak
@pytest.mark.timeout(900)
def test_debian_programs_accept_the_written_files(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nfs-kernel-server, prometheus, openssh, nftables and chrony; and they do find what is wrong."""
    if os.geteuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("creating a Debian root needs root and debootstrap")
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    debian = make_root(PACKAGES)
    result = _in(debian, root, tmp_path, " && ".join(CHECKED_BY))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("/srv/shared  10.77.0.2(async,")
    assert "root_squash" in result.stdout
    assert "\nn\n" in result.stdout  # version 3 of NFS
    for path, (right, wrong) in BROKEN.items():
        file = root / path
        text = file.read_text()
        assert right in text
        file.write_text(text.replace(right, wrong))
        result = _in(debian, root, tmp_path, " && ".join(CHECKED_BY))
        file.write_text(text)
        assert result.returncode != 0, path
        assert wrong in result.stdout + result.stderr, path


def _in(debian: Path, root: Path, directory: Path, line: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a Debian root with the rendered files on top; nothing of it persists."""
    at = directory / "debian"
    at.mkdir(exist_ok=True)
    script = (
        'mount -t tmpfs none "$3" && mkdir "$3/upper" "$3/work" "$3/root" && ip link set lo up && '
        'mount -t overlay overlay -o "lowerdir=$1,upperdir=$3/upper,workdir=$3/work" "$3/root" && '
        'mount -t proc proc "$3/root/proc" && cp -r "$2/etc" "$3/root/" && mkdir -p "$3/root/srv/shared" && '
        'PATH=/usr/sbin:/usr/bin:/sbin:/bin exec chroot "$3/root" sh -c "$4"'
    )
    argv = ("unshare", "--mount", "--net", "sh", "-c", script, "sh", debian, root, at, line)
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
