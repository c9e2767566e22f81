"""What goes wrong on a machine while roles are applied: a sentence with machine and step, and the next `up` goes on."""

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

from gpuyard.deploy.ansible.run import failure, play
from gpuyard.deploy.deployment import open_deployment, up
from gpuyard.deploy.verify.check import Deployed
from gpuyard.errors import GpuyardError
from gpuyard.files import home as own_home
from gpuyard.lab.machine_root import make_root
from gpuyard.measure.store import ResultsStore
from tests.command_line import ROOT
from tests.conftest import LAB_ROOTS, Cli
from tests.deploy.bare_machine import FILE, PASSWORD, BareMachine, bare_machine
from tests.deploy.small_disk import fill, small_disk
from tests.ssh_hosts import free_port

WRONG = "wrong-staple-77e2"
KEY = "secret-of-a-cloud-41f0"
MIRROR = "deb [trusted=yes] http://127.0.0.1:9/debian bookworm main"
DEAD_MOUNT = """
mkdir -p /srv/shared
printf '#!/bin/sh\\nexec /usr/lib/openssh/sftp-server\\n' > /tmp/server && chmod 755 /tmp/server
sshfs -o ssh_command=/tmp/server nobody:/var /srv/shared && ls /srv/shared && pkill -STOP sshfs
"""
RECORDED = (  # from runs of the tests below
    ("Task failed: Missing sudo password", "Sudo wants a password there: give it with --ask-sudo"),
    ("Task failed: Incorrect sudo password", "Sudo took no such password there"),
    (
        "E:Write error - write (28: No space left on device), E:IO Error saving source cache, E:The package lists or "
        "status file could not be parsed or opened.",
        "A disk of this machine is full: make room on it, then run it again",
    ),
    ("Failed to update apt cache after 5 retries: ", "does not get its packages"),
    (
        '\'/usr/bin/apt-get -y -o "Dpkg::Options::=--force-confdef" -o "Dpkg::Options::=--force-confold" -o '
        "DPkg::Lock::Timeout=60 install 'prometheus=2.42.0+ds-5+deb12u1' -o APT::Install-Recommends=no' failed: E: You "
        "don't have enough free space in /var/cache/apt/archives/. ",
        "A disk of this machine is full: make room on it, then run it again",
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


@pytest.mark.parametrize(("said", "advice"), RECORDED)
def test_a_failure_names_machine_and_step_and_what_to_try(said: str, advice: str) -> None:
    sentence = failure({"host": "gpu1", "task": "Do it", "res": {"msg": said, "failed": True}})
    assert sentence.startswith(f"gpu1: 'Do it' failed: {said[:20]}")
    assert advice in sentence
    assert ".." not in sentence
    assert ":." not in sentence


def test_what_is_said_late_of_a_full_disk_is_shown() -> None:
    sentence = failure({"host": "gpu1", "task": "Do it", "res": {"msg": UNPACKED, "failed": True}})
    assert "failed to write (No space left on device. A disk of this machine is full" in sentence
    assert sentence.startswith("gpu1: 'Do it' failed: '/usr/bin/apt-get")
    assert len(sentence) < 500


def test_a_full_disk_is_no_machine_that_can_not_be_reached() -> None:
    """What Ansible says where it can't make its directory there."""
    said = "Task failed: mkdir: cannot create directory ‘/root/.ansible’: No space left on device"
    result = {"msg": said, "unreachable": True, "changed": False}
    sentence = failure({"host": "gpu1", "task": "Do it", "res": result})
    assert sentence.startswith("gpu1: 'Do it' failed: Task failed: mkdir")
    assert "A disk of this machine is full: make room on it" in sentence
    assert "reached" not in sentence


def test_a_machine_that_is_not_there_is_named_with_the_step() -> None:
    said = 'Task failed: Data could not be sent to remote host "gpu1". Connection refused'
    result = {"msg": said, "unreachable": True}
    sentence = failure({"host": "gpu1", "task": "Gathering Facts", "res": result})
    assert sentence.startswith("gpu1 can't be reached at the step 'Gathering Facts': Task failed")
    assert "See that it is up and that ssh lets you in" in sentence


def test_a_password_is_asked_for_on_a_terminal_only(cli: Cli) -> None:
    file = str(ROOT / "examples/pair.deployment.yaml")
    said = cli("deploy", "up", file, "--ask-sudo-password", status=2).stderr
    assert "set GPUYARD_SUDO_PASSWORD instead" in said
    bad = {"GPUYARD_SUDO_PASSWORD": "two\nlines"}
    said = cli("deploy", "up", file, status=2, environment=bad).stderr
    assert "printable" in said
    assert "two" not in said


def test_nothing_of_the_environment_that_could_be_a_key_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ansible_runner")
    for name in ("LAMBDA_API_KEY", "AWS_SECRET_ACCESS_KEY", "GPUYARD_SUDO_PASSWORD", "MY_OWN"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("PIP_INDEX_URL", f"https://me:{KEY}@mirror.invalid/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels-of-this-machine")  # which its pip needs
    play(tmp_path, HERE, lambda _: None, sudo_password=PASSWORD)
    assert os.environ["LAMBDA_API_KEY"] == KEY
    assert list(tmp_path.rglob("command"))
    assert _kept(tmp_path, KEY, PASSWORD) == []
    assert _kept(tmp_path, "/wheels-of-this-machine")


def test_an_ansible_that_is_killed_is_told_with_the_step_and_what_to_do(tmp_path: Path) -> None:
    pytest.importorskip("ansible_runner")

    def kill(step: str) -> None:
        if step == "Gathering Facts":
            os.kill(_child("ansible-playbook"), signal.SIGKILL)

    with pytest.raises(GpuyardError, match=r"at the step '.+' without a word .* run it again"):
        play(tmp_path, HERE, kill)
    play(tmp_path, HERE, lambda _: None)


def test_a_task_that_hangs_is_told_with_machine_and_step(
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
        with pytest.raises(GpuyardError, match="localhost: 'Gathering Facts' did not end in 5 s"):
            play(tmp_path / "play", {"all": {"hosts": {"localhost": host}}}, lambda _: None)
    finally:
        os.kill(int(number.read_text()), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of Ansible's log
def test_a_disk_of_this_machine_that_fills_meanwhile_is_told_with_the_step(tmp_path: Path) -> None:
    pytest.importorskip("ansible_runner")
    with small_disk(tmp_path / "disk", megabytes=4) as disk:

        def when(step: str) -> None:
            if step == "Gathering Facts":
                fill(disk / "filler")

        with pytest.raises(GpuyardError, match=rf"{disk}/play is full at the step 'Gathering Fact"):
            play(disk / "play", HERE, when)
        (disk / "filler").unlink()
        play(disk / "play", HERE, lambda _: None)


def test_a_home_without_room_is_a_sentence_and_the_next_run_goes_on(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "bare.deployment.yaml"
    file.write_text(FILE.format(user="root", roles="[]", port=free_port()))
    with small_disk(tmp_path / "disk", megabytes=8) as disk:
        monkeypatch.setenv("GPUYARD_HOME", str(disk))
        fill(disk / "filler")
        said = cli("deploy", "up", str(file), status=1).stderr
        assert str(disk) in said
        assert "No space left" in said or "is full" in said
        assert "answer" not in said
        (disk / "filler").unlink()
        assert "one can't be reached" in cli("deploy", "up", str(file), status=1).stderr


def _child(program: str) -> int:
    """Of this process; other tests may have left some that have ended."""
    found = []
    for one in psutil.Process().children():
        with contextlib.suppress(psutil.Error):
            if any(Path(part).name == program for part in one.cmdline()):
                found.append(int(one.pid))
    (only,) = found
    return only


def _kept(directory: Path, *secrets: str) -> list[Path]:
    """Files that have one of these in them."""
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
    with bare_machine(make_root(), tmp_path / "machine") as machine:
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
    assert "Sudo wants a password there" in missing
    given = {"GPUYARD_SUDO_PASSWORD": WRONG, "LAMBDA_API_KEY": KEY}
    wrong = cli("deploy", "up", file, status=1, environment=given).stderr
    assert "one: 'Gathering Facts' failed" in wrong
    assert "Sudo took no such password there" in wrong
    cli("deploy", "up", file, environment={"GPUYARD_SUDO_PASSWORD": PASSWORD})
    opened = open_deployment(Path(file))
    (host,) = opened.state.hosts()
    without = Deployed(opened, (host,), ResultsStore(tmp_path / "results.sqlite"))
    assert "password is required" in without.run_as_root(host, "id -u").stderr
    given_it = replace(without, sudo_password=PASSWORD)
    assert given_it.run_as_root(host, "id -u").stdout == "0\n"
    assert PASSWORD not in repr(given_it)
    assert _kept(own_home(), PASSWORD, WRONG, KEY) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_the_password_is_asked_for_and_not_shown(bare: BareMachine) -> None:
    pexpect = pytest.importorskip("pexpect")
    argv = ["-P", "-m", "gpuyard", "deploy", "up", bare.deployment(), "--ask-sudo-password"]
    child = pexpect.spawn(sys.executable, argv, encoding="utf-8", timeout=240)
    child.expect("Password of sudo on its machines: ")
    child.sendline(PASSWORD)
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0, child.before
    assert PASSWORD not in child.before
    assert _kept(own_home(), PASSWORD) == []


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_a_full_disk_up_goes_on(cli: Cli, bare: BareMachine) -> None:
    file = bare.deployment(user="root")
    bare.run("dd if=/dev/zero of=/filler bs=64k 2>/dev/null || true")
    said = cli("deploy", "up", file, status=1).stderr
    assert "one: 'Ask the mirror which packages there are' failed" in said
    assert "A disk of this machine is full" in said
    bare.run("rm /filler")
    cli("deploy", "up", file)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_a_disk_that_filled_during_a_role_up_goes_on(bare: BareMachine) -> None:
    file = Path(bare.deployment(user="root", roles="[base]"))
    filled, steps = "Take keys only, and no passwords", list[str]()

    def when(step: str) -> None:
        if step == filled:
            bare.run("dd if=/dev/zero of=/filler bs=64k 2>/dev/null || true")

    with pytest.raises(GpuyardError, match=f"one: '{filled}' failed: .* A disk of this machine is"):
        up(open_deployment(file), when)
    bare.run("rm /filler")
    with pytest.raises(GpuyardError, match="'Install a time service' failed: No package"):
        up(open_deployment(file), steps.append)  # it has no mirror
    assert steps[steps.index(filled) + 1 :]
    assert "PasswordAuthentication no" in bare.run("cat /etc/ssh/sshd_config.d/10-gpuyard.conf")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_after_a_mirror_that_was_down_up_goes_on(cli: Cli, bare: BareMachine) -> None:
    file = bare.deployment(user="root")
    bare.run(f"echo '{MIRROR}' > /etc/apt/sources.list")
    # its root may have been made a minute ago, and what a mirror said is good for an hour
    bare.run(
        "rm -f /var/lib/apt/periodic/update-success-stamp; touch -d '2 days ago' /var/lib/apt/lists"
    )
    said = cli("deploy", "up", file, status=1).stderr
    assert "one: 'Ask the mirror which packages there are' failed" in said
    assert "does not get its packages" in said
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
    said = cli("deploy", "up", file, status=1, environment=limit).stderr
    assert "one: 'Make the shared directory' did not end in 20 s" in said
    assert "a mount whose server is gone" in said
    bare.run("pkill -KILL sshfs; umount -l /srv/shared")
    cli("deploy", "up", file)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_after_a_machine_that_was_not_there_up_goes_on(cli: Cli, bare: BareMachine) -> None:
    said = cli("deploy", "up", bare.deployment(user="root", port=free_port()), status=1).stderr
    assert "one can't be reached at the step 'Gathering Facts'" in said
    assert "See that it is up" in said
    cli("deploy", "up", bare.deployment(user="root"))
