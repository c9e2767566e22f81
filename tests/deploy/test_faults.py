"""Failures while roles are applied: the message names the machine and the step, and the next `up` continues."""

import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from gpuyard.deploy.ansible.run import describe_failure, run_playbook
from gpuyard.deploy.deployment import load_deployment, up
from gpuyard.deploy.verify.check import VerificationContext
from gpuyard.errors import GpuyardError
from gpuyard.files import home as own_home
from gpuyard.lab.machine_root import make_root
from gpuyard.measure.store import ResultsStore
from tests.command_line import ROOT
from tests.conftest import LAB_ROOTS, Cli
from tests.deploy.bare_machine import FILE, PASSWORD, BareMachine, bare_machine
from tests.deploy.small_disk import fill, small_disk
from tests.ssh_hosts import find_free_port

WRONG = "wrong-staple-77e2"
KEY = "secret-of-a-cloud-41f0"
MIRROR = "deb [trusted=yes] http://127.0.0.1:9/debian bookworm main"
DEAD_MOUNT = """
mkdir -p /srv/shared
printf '#!/bin/sh\\nexec /usr/lib/openssh/sftp-server\\n' > /tmp/server && chmod 755 /tmp/server
sshfs -o ssh_command=/tmp/server nobody:/var /srv/shared && ls /srv/shared && pkill -STOP sshfs
"""
RECORDED = (  # from runs of the tests below
    ("Task failed: Missing sudo password", "--ask-sudo-password"),
    ("Task failed: Incorrect sudo password", "Sudo rejected the password"),
    (
        "E:Write error - write (28: No space left on device), E:IO Error saving source cache, E:The package lists or "
        "status file could not be parsed or opened.",
        "A disk of this machine is full",
    ),
    ("Failed to update apt cache after 5 retries: ", "mirror"),
    (
        '\'/usr/bin/apt-get -y -o "Dpkg::Options::=--force-confdef" -o "Dpkg::Options::=--force-confold" -o '
        "DPkg::Lock::Timeout=60 install 'prometheus=2.42.0+ds-5+deb12u1' -o APT::Install-Recommends=no' failed: E: You "
        "don't have enough free space in /var/cache/apt/archives/. ",
        "A disk of this machine is full",
    ),
)
UNPACKED = (  # what dpkg says of a disk that fills meanwhile stands behind all that it did before
    '\'/usr/bin/apt-get -y -o "Dpkg::Options::=--force-confdef" -o "Dpkg::Options::=--force-confold" -o '
    "DPkg::Lock::Timeout=60 install 'chrony=4.3-2+deb12u3' -o APT::Install-Recommends=no' failed: debconf: delaying package "
    "configuration, since apt-utils is not installed E: Sub-process /usr/bin/dpkg returned an error code (1) ; Reading "
    "package lists... Building dependency tree... Unpacking chrony (4.3-2+deb12u3) ... dpkg: error processing archive "
    "/var/cache/apt/archives/chrony_4.3-2+deb12u3_amd64.deb (--unpack): cannot copy extracted data for "
    "'./usr/sbin/chronyd' to '/usr/sbin/chronyd.dpkg-new': failed to write (No space left on device)"
)
HERE = {
    "all": {
        "hosts": {
            "localhost": {
                "ansible_connection": "local",
                "ansible_become": False,
                "ansible_python_interpreter": sys.executable,
                "gpuyard_roles": [],
                "gpuyard_packages_are_there": True,
            }
        }
    }
}


@pytest.mark.parametrize(("output", "advice"), RECORDED)
def test_a_failure_names_machine_and_step_and_what_to_try(output: str, advice: str) -> None:
    message = describe_failure(
        {"host": "gpu1", "task": "Do it", "res": {"msg": output, "failed": True}}
    )
    assert message.startswith(f"gpu1: 'Do it' failed: {output[:20]}")
    assert advice in message
    assert ".." not in message
    assert ":." not in message


def test_a_full_disk_at_the_end_of_a_long_message_is_shown() -> None:
    message = describe_failure(
        {"host": "gpu1", "task": "Do it", "res": {"msg": UNPACKED, "failed": True}}
    )
    assert "No space left on device" in message
    assert "disk of this machine is full" in message
    assert message.startswith("gpu1: 'Do it' failed: '/usr/bin/apt-get")
    assert len(message) < 500


def test_a_full_disk_is_not_reported_as_unreachable() -> None:
    """Ansible reports this if it cannot create its directory on the machine."""
    output = "Task failed: mkdir: cannot create directory ‘/root/.ansible’: No space left on device"
    result = {"msg": output, "unreachable": True, "changed": False}
    message = describe_failure({"host": "gpu1", "task": "Do it", "res": result})
    assert message.startswith("gpu1: 'Do it' failed: Task failed: mkdir")
    assert "A disk of this machine is full" in message
    assert "unreachable" not in message


def test_an_absent_machine_is_named_with_the_step() -> None:
    output = 'Task failed: Data could not be sent to remote host "gpu1". Connection refused'
    result = {"msg": output, "unreachable": True}
    message = describe_failure({"host": "gpu1", "task": "Gathering Facts", "res": result})
    assert message.startswith("gpu1 is unreachable at the step 'Gathering Facts': Task failed")
    assert "ssh" in message


def test_a_password_is_asked_for_on_a_terminal_only(cli: Cli) -> None:
    file = str(ROOT / "examples/pair.deployment.yaml")
    output = cli("deploy", "up", file, "--ask-sudo-password", status=2).stderr
    assert "set GPUYARD_SUDO_PASSWORD instead" in output
    bad = {"GPUYARD_SUDO_PASSWORD": "two\nlines"}
    output = cli("deploy", "up", file, status=2, environment=bad).stderr
    assert "printable" in output
    assert "two" not in output


def test_nothing_of_the_environment_that_could_be_a_key_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ansible_runner")
    for name in ("LAMBDA_API_KEY", "AWS_SECRET_ACCESS_KEY", "GPUYARD_SUDO_PASSWORD", "MY_OWN"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("PIP_INDEX_URL", f"https://me:{KEY}@mirror.invalid/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels-of-this-machine")  # which its pip needs
    run_playbook(tmp_path, HERE, lambda _: None, sudo_password=PASSWORD)
    assert os.environ["LAMBDA_API_KEY"] == KEY
    assert list(tmp_path.rglob("command"))
    assert _find_secrets(tmp_path, KEY, PASSWORD) == []
    assert _find_secrets(tmp_path, "/wheels-of-this-machine")


def test_a_killed_ansible_is_reported_with_the_step_and_the_fix(tmp_path: Path) -> None:
    pytest.importorskip("ansible_runner")

    def kill(step: str) -> None:
        if step == "Gathering Facts":
            os.kill(_child("ansible-playbook"), signal.SIGKILL)

    with pytest.raises(GpuyardError, match=r"at the step '.+' .* run it again"):
        run_playbook(tmp_path, HERE, kill)
    run_playbook(tmp_path, HERE, lambda _: None)


def test_a_hanging_task_is_reported_with_machine_and_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here its Python never answers."""
    pytest.importorskip("ansible_runner")
    python, number = tmp_path / "python", tmp_path / "pid"
    python.write_text(f"#!/bin/sh\necho $$ > {number}\nexec sleep 600\n")
    python.chmod(0o755)
    monkeypatch.setenv("ANSIBLE_TASK_TIMEOUT", "5")
    host = {**HERE["all"]["hosts"]["localhost"], "ansible_python_interpreter": str(python)}
    try:
        with pytest.raises(GpuyardError, match="localhost: 'Gathering Facts' timed out after 5 s"):
            run_playbook(tmp_path / "play", {"all": {"hosts": {"localhost": host}}}, lambda _: None)
    finally:
        os.kill(int(number.read_text()), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Ansible's log
def test_a_disk_that_fills_during_a_run_is_reported_with_the_step(tmp_path: Path) -> None:
    pytest.importorskip("ansible_runner")
    with small_disk(tmp_path / "disk", megabytes=4) as disk:

        def when(step: str) -> None:
            if step == "Gathering Facts":
                fill(disk / "filler")

        with pytest.raises(GpuyardError, match=rf"{disk}/play is full at the step 'Gathering Fact"):
            run_playbook(disk / "play", HERE, when)
        (disk / "filler").unlink()
        run_playbook(disk / "play", HERE, lambda _: None)


def test_a_full_home_is_reported_and_the_next_run_continues(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bare.deployment.yaml"
    file.write_text(FILE.format(user="root", roles="[]", port=find_free_port()))
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        monkeypatch.setenv("GPUYARD_HOME", str(disk))
        fill(disk / "filler")
        output = cli("deploy", "up", str(file), status=1).stderr
        assert str(disk) in output
        assert "No space left" in output or "is full" in output
        assert "answer" not in output
        (disk / "filler").unlink()
        assert "one is unreachable" in cli("deploy", "up", str(file), status=1).stderr


def _child(program: str) -> int:
    """Return the id of this process's child that runs the program; other tests may have left zombies."""
    pids = []
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(Path(part).name == program for part in child.cmdline()):
                pids.append(int(child.pid))
    (only,) = pids
    return only


def _find_secrets(directory: Path, *secrets: str) -> list[Path]:
    """Return the files that contain one of these secrets."""
    paths = [path for path in directory.rglob("*") if path.is_file()]
    assert paths
    return [p for p in paths if any(secret.encode() in p.read_bytes() for secret in secrets)]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BareMachine]:
    programs = ("debootstrap", "unshare", "ssh", "ssh-keygen")
    if os.geteuid() != 0 or not all(map(shutil.which, programs)):
        pytest.skip(f"a machine of its own needs root and {', '.join(programs)}")
    pytest.importorskip("ansible_runner")
    monkeypatch.setenv("GPUYARD_ROOTS", str(LAB_ROOTS))
    with bare_machine(make_root(("fuse3", "sshfs")), tmp_path / "machine") as machine:
        monkeypatch.setenv("PATH", f"{machine.programs}:{os.environ['PATH']}")
        yield machine


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_sudo_gets_its_password_and_nothing_keeps_it(
    cli: Cli, bare: BareMachine, tmp_path: Path
) -> None:
    file = bare.deployment()
    missing = cli("deploy", "up", file, status=1).stderr
    assert "one: 'Gathering Facts' failed" in missing
    assert "--ask-sudo-password" in missing
    environment = {"GPUYARD_SUDO_PASSWORD": WRONG, "LAMBDA_API_KEY": KEY}
    wrong = cli("deploy", "up", file, status=1, environment=environment).stderr
    assert "one: 'Gathering Facts' failed" in wrong
    assert "Sudo rejected the password" in wrong
    cli("deploy", "up", file, environment={"GPUYARD_SUDO_PASSWORD": PASSWORD})
    loaded = load_deployment(Path(file))
    (host,) = loaded.state.hosts()
    without = VerificationContext(loaded, (host,), ResultsStore(tmp_path / "results.sqlite"))
    assert "password is required" in without.run_as_root(host, "id -u").stderr
    with_password = replace(without, sudo_password=PASSWORD)
    assert with_password.run_as_root(host, "id -u").stdout == "0\n"
    assert PASSWORD not in repr(with_password)
    assert _find_secrets(own_home(), PASSWORD, WRONG, KEY) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_password_is_asked_for_and_not_shown(bare: BareMachine) -> None:
    pexpect = pytest.importorskip("pexpect")
    argv = ["-P", "-m", "gpuyard", "deploy", "up", bare.deployment(), "--ask-sudo-password"]
    child = pexpect.spawn(sys.executable, argv, encoding="utf-8", timeout=240)
    child.expect("sudo password of its machines: ")
    child.sendline(PASSWORD)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0, child.before
    assert PASSWORD not in child.before
    assert _find_secrets(own_home(), PASSWORD) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_up_continues_after_a_full_disk(cli: Cli, bare: BareMachine) -> None:
    file = bare.deployment(user="root")
    bare.run("dd if=/dev/zero of=/filler bs=64k 2>/dev/null || true")
    output = cli("deploy", "up", file, status=1).stderr
    assert "one: 'Update the package index' failed" in output
    assert "A disk of this machine is full" in output
    bare.run("rm /filler")
    cli("deploy", "up", file)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_up_continues_after_a_disk_filled_during_a_role(bare: BareMachine) -> None:
    file = Path(bare.deployment(user="root", roles="[base]"))
    filled, steps = "Allow only keys for ssh, not passwords", list[str]()

    def when(step: str) -> None:
        if step == filled:
            bare.run("dd if=/dev/zero of=/filler bs=64k 2>/dev/null || true")

    with pytest.raises(GpuyardError, match=f"one: '{filled}' failed: .* A disk of this machine is"):
        up(load_deployment(file), when)
    bare.run("rm /filler")
    with pytest.raises(GpuyardError, match="'Install a time service' failed: No package"):
        up(load_deployment(file), steps.append)  # it has no mirror
    assert steps[steps.index(filled) + 1 :]
    assert "PasswordAuthentication no" in bare.run("cat /etc/ssh/sshd_config.d/10-gpuyard.conf")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_up_continues_after_a_mirror_was_down(cli: Cli, bare: BareMachine) -> None:
    file = bare.deployment(user="root")
    bare.run(f"echo '{MIRROR}' > /etc/apt/sources.list")
    # its root may have been made a minute ago, and what a mirror said is good for an hour
    bare.run(
        "rm -f /var/lib/apt/periodic/update-success-stamp; touch -d '2 days ago' /var/lib/apt/lists"
    )
    output = cli("deploy", "up", file, status=1).stderr
    assert "one: 'Update the package index' failed" in output
    assert "mirror" in output
    bare.run("rm /etc/apt/sources.list")
    cli("deploy", "up", file)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_mount_whose_server_is_gone_does_not_hold_up_for_ever(
    cli: Cli, bare: BareMachine
) -> None:
    file = bare.deployment(user="root", roles="[shared-storage]")
    bare.run(DEAD_MOUNT)
    limit = {"ANSIBLE_TASK_TIMEOUT": "20"}
    output = cli("deploy", "up", file, status=1, environment=limit).stderr
    assert "one: 'Create the shared directory' timed out after 20 s" in output
    assert "mount" in output
    bare.run("pkill -KILL sshfs; umount -l /srv/shared")
    cli("deploy", "up", file)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_up_continues_after_a_machine_was_absent(cli: Cli, bare: BareMachine) -> None:
    output = cli(
        "deploy", "up", bare.deployment(user="root", port=find_free_port()), status=1
    ).stderr
    assert "one is unreachable at 127.0.0.1" in output
    cli("deploy", "up", bare.deployment(user="root"))
