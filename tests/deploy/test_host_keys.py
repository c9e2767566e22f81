"""Host keys over a real ssh: new ones are shown and recorded once, and a changed one stops every command."""

import contextlib
import getpass
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpuyard.deploy.access.host_keys import HostKey, UnknownHostKeys, record_host_keys
from gpuyard.deploy.ansible.run import apply_roles
from gpuyard.deploy.deployment import LoadedDeployment, load_deployment
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError
from tests.conftest import Cli
from tests.deploy.conftest import FILE
from tests.ssh_hosts import ssh_hosts


@dataclass(frozen=True)
class Existing:
    """Two machines that the user has; the second is behind the first."""

    file: str
    loaded: LoadedDeployment
    key: str
    """Type and key that both present."""
    users_known_hosts: Path
    directory: Path

    @property
    def hosts(self) -> tuple[Host, ...]:
        return self.loaded.target.hosts(self.loaded.deployment, {})

    @property
    def fingerprint(self) -> str:
        return _fingerprint(self.directory / "host_key.pub")

    def record(self, hosts: tuple[Host, ...], *, accept: bool) -> list[str]:
        """Do what `up` does before it applies roles; return the recorded lines."""
        state = self.loaded.state
        with state.hold():
            state.write_hosts(hosts)
            record_host_keys(state, hosts, lambda _key: accept)
        return state.known_hosts.read_text().splitlines()


@pytest.fixture
def existing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Existing]:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "me" / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    with ssh_hosts(tmp_path, tmp_path / "hidden"), _agent(tmp_path / "user_key") as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        port = (tmp_path / "sshd_config").read_text().split()[1]
        file = tmp_path / "ours.deployment.yaml"
        shared = tmp_path / "shared"
        file.write_text(
            FILE.format(user=getpass.getuser(), port=port, shared=shared, environment=sys.prefix)
        )
        key = " ".join((tmp_path / "host_key.pub").read_text().split()[:2])
        known = tmp_path / "me" / ".ssh" / "known_hosts"
        yield Existing(str(file), load_deployment(file), key, known, tmp_path)


@contextlib.contextmanager
def _agent(key: Path) -> Iterator[str]:
    """Run an ssh agent with this key."""
    socket = str(key.parent / "agent")
    agent = subprocess.Popen(("ssh-agent", "-D", "-a", socket), stdout=subprocess.DEVNULL)
    try:
        environment = {**os.environ, "SSH_AUTH_SOCK": socket}
        while not Path(socket).exists():
            assert agent.poll() is None
        subprocess.run(("ssh-add", "-q", str(key)), env=environment, check=True)
        yield socket
    finally:
        agent.terminate()
        agent.wait()


def _fingerprint(public_key: Path) -> str:
    argv = ("ssh-keygen", "-l", "-f", str(public_key))
    return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()[1]


def _other_key(directory: Path) -> str:
    path = directory / "other_key"
    argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path))
    subprocess.run(argv, check=True)
    return " ".join(path.with_suffix(".pub").read_text().split()[:2])


def test_unknown_keys_are_shown_and_refused_unless_accepted(cli: Cli, existing: Existing) -> None:
    error = cli("deploy", "up", existing.file, status=1).stderr
    assert error.count(existing.fingerprint) == 2
    assert "--accept-new-host-keys" in error
    assert existing.loaded.state.known_hosts.read_text() == ""

    recorded = existing.record(existing.hosts, accept=True)
    assert recorded == [f"{host.known_name} {existing.key}" for host in existing.hosts]
    assert recorded[1].startswith("[127.0.0.2]:")
    assert existing.record(existing.hosts, accept=False) == recorded  # nothing left to ask
    assert not existing.users_known_hosts.exists()


def test_keys_that_the_user_knows_are_not_asked_for(existing: Existing) -> None:
    lines = "".join(f"{host.known_name} {existing.key}\n" for host in existing.hosts)
    existing.users_known_hosts.write_text(lines)
    assert existing.record(existing.hosts, accept=False) == []
    assert existing.users_known_hosts.read_text() == lines


def test_only_the_keys_that_were_shown_are_accepted(existing: Existing) -> None:
    with pytest.raises(UnknownHostKeys) as refused:
        existing.record(existing.hosts, accept=False)
    kind, blob = existing.key.split()
    assert refused.value.keys == tuple(HostKey(host, kind, blob) for host in existing.hosts)
    assert {key.fingerprint for key in refused.value.keys} == {existing.fingerprint}


def test_a_changed_key_stops_every_command_and_says_what_to_do(
    cli: Cli, existing: Existing, tmp_path: Path
) -> None:
    state = existing.loaded.state
    existing.record(existing.hosts, accept=True)
    cli("deploy", "sync", existing.file, str(tmp_path / "me"), "--dry-run")
    text = state.known_hosts.read_text().replace(existing.key, _other_key(tmp_path))
    state.known_hosts.write_text(text)
    for command in (
        ("up", existing.file, "--accept-new-host-keys"),
        ("verify", existing.file),
        ("ssh", existing.file),
        ("ssh", existing.file, "two"),
        ("sync", existing.file, str(tmp_path / "me")),
    ):
        error = cli("deploy", *command, status=1).stderr
        assert "host key of localhost (127.0.0.1) has changed" in error, command
        assert existing.fingerprint in error
        assert "WARNING" not in error
        (forget,) = [part for part in error.split("`") if "-R" in part]
    assert str(state.known_hosts) in forget
    subprocess.run(shlex.split(" ".join(forget.split())), check=True, capture_output=True)
    assert "is unknown" in cli("deploy", "verify", existing.file, status=1).stderr
    assert existing.fingerprint in cli("deploy", "up", existing.file, status=1).stderr


def test_ansible_does_not_connect_to_a_machine_with_another_key(
    existing: Existing, tmp_path: Path
) -> None:
    """Its connection carries the sudo password and the munge key."""
    pytest.importorskip("ansible_runner")
    state = existing.loaded.state
    existing.record(existing.hosts, accept=True)
    text = state.known_hosts.read_text().replace(existing.key, _other_key(tmp_path))
    state.known_hosts.write_text(text)
    # Without the check, Ansible would change this machine, so there is nothing to apply.
    deployment = existing.loaded.deployment.model_copy(update={"head": ()})
    nothing = {"gpuyard_packages_are_there": True}
    with pytest.raises(GpuyardError, match="localhost: ssh refused its host key at"):
        apply_roles(deployment, existing.hosts[:1], state, nothing, lambda _step: None)


def test_a_created_machine_is_trusted_once_and_again_only_if_it_was_replaced(
    existing: Existing, tmp_path: Path
) -> None:
    state = existing.loaded.state
    created = tuple(
        replace(host, trust_on_first_use=True, machine_id=f"i-{host.name}")
        for host in existing.hosts
    )
    recorded = existing.record(created, accept=False)
    assert recorded == [f"localhost {existing.key}", f"two {existing.key}"]
    other = _other_key(tmp_path)
    state.known_hosts.write_text(f"localhost {existing.key}\ntwo {other}\n")
    with pytest.raises(GpuyardError, match=r"host key of two \(127.0.0.2\) has changed"):
        existing.record(created, accept=True)
    replaced = (created[0], replace(created[1], machine_id="i-new"))
    assert existing.record(replaced, accept=False) == recorded


def test_the_user_is_asked_at_a_terminal(existing: Existing) -> None:
    pexpect = pytest.importorskip("pexpect")
    argv = ["-P", "-m", "gpuyard", "deploy", "up", existing.file]
    child = pexpect.spawn(sys.executable, argv, encoding="utf-8", timeout=120)
    child.expect_exact(existing.fingerprint)
    child.expect(r"your machines\? \[y/N\]")
    child.sendline("n")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 1
    assert existing.loaded.state.known_hosts.read_text() == ""
