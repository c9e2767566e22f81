"""Run the playbook on a deployment's hosts with ansible-runner.

A failure becomes one message that names the machine, the step, and the next thing to try.
"""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.deploy import StatusCallback
from gpuyard.deploy.ports import get_ports
from gpuyard.deploy.state import DISK_FULL_ERRORS, Host, StateDirectory, full_disk_error
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.specs.deployment import Deployment, RoleName
from gpuyard.temporary import shared_directory, temporary_directory

_PLAYBOOK = Path(__file__).parent
_TEMPLATE_MARKS = ("{{", "{%", "{#")
_DEBUG_ACTIONS = ("debug", "ansible.builtin.debug")
_KEEP_OPEN = "-o ControlMaster=auto -o ControlPersist=60s"
_REMOTE_TEMP = "~/.ansible/tmp"
_TASK_TIMEOUT_SECONDS = 300  # tasks that download or build packages set a longer timeout
_TIMEOUT_VARIABLE = "ANSIBLE_TASK_TIMEOUT"
_SUDO_PROMPT = r"BECOME password:\s*$"
# ansible-runner saves its environment, and a user's may contain cloud credentials.
_ALLOWED_VARIABLES = (
    "HOME",
    "KRB5CCNAME",
    "LANG",
    "LANGUAGE",
    "LD_LIBRARY_PATH",
    "LOGNAME",
    "PATH",
    "PYTHONPATH",
    "SHELL",
    "SSH_AUTH_SOCK",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "VIRTUAL_ENV",
    "XDG_RUNTIME_DIR",
)
_ALLOWED_PREFIXES = ("ANSIBLE_", "GPUYARD_", "LC_")
# Package mirrors, for roles that are applied to this machine; a URL may contain a password before its "@".
_MIRROR_VARIABLES = (
    "PIP_CERT",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_INDEX_URL",
    "REQUESTS_CA_BUNDLE",
    "SSL_CERT_FILE",
    *(f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "NO")),
    *(f"{kind}_proxy" for kind in ("http", "https", "no")),
)
_MAX_EXCERPT = 300
_RETRY = "then run it again: it continues where it stopped"
_FULL_DISK = re.compile(r"no space left on device|enough free space|disk quota", re.IGNORECASE)
_CAUSES = (
    (
        re.compile(r"(?:incorrect|wrong) sudo password", re.IGNORECASE),
        "sudo rejected the password: pass the right one with --ask-sudo-password or GPUYARD_SUDO_PASSWORD, the same for "
        "every machine",
    ),
    (
        re.compile(r"missing sudo password|sudo: a password is required", re.IGNORECASE),
        "sudo needs a password: pass it with --ask-sudo-password or GPUYARD_SUDO_PASSWORD",
    ),
    (
        _FULL_DISK,
        f"a disk of this machine is full: free some space, {_RETRY}",
    ),
    (
        re.compile(
            r"failed to (?:fetch|update apt cache)|unable to fetch|could ?n[o']t (?:connect to|resolve) |"
            r"temporary failure (?:in name resolution|resolving)|could not find a version",
            re.IGNORECASE,
        ),
        f"the machine cannot download packages: check that it reaches the mirror that its apt or pip names, {_RETRY}",
    ),
)


@dataclass(frozen=True)
class PlayRecap:
    """The number of tasks that changed something, by host, and the notes of roles for the user."""

    changed: Mapping[str, int]
    notes: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    """Names of the tasks that changed something, or would."""

    @property
    def changes(self) -> int:
        return sum(self.changed.values())


def apply_roles(
    deployment: Deployment,
    hosts: Sequence[Host],
    state: StateDirectory,
    variables: Mapping[str, Any],
    report: StatusCallback,
    *,
    sudo_password: str | None = None,
) -> PlayRecap:
    """Apply every host's roles; repeating it changes nothing. Raises with the first failure."""
    ssh = f"-F {shlex.quote(str(state.ssh_config))} -o BatchMode=yes -o ConnectTimeout=20 {_KEEP_OPEN}"
    return run_playbook(
        state.ansible,
        build_inventory(deployment, hosts, variables),
        report,
        settings={"ANSIBLE_SSH_ARGS": ssh},
        sudo_password=sudo_password,
    )


def require_ansible() -> None:
    """Raise if Ansible is missing."""
    if importlib.util.find_spec("ansible_runner") is None:
        raise MissingRequirement("Ansible is not installed; run: pip install 'gpuyard[deploy]'")


def run_playbook(
    directory: Path,
    hosts: Mapping[str, Any],
    report: StatusCallback,
    *,
    settings: Mapping[str, str] | None = None,
    check: bool = False,
    on_change: StatusCallback | None = None,
    sudo_password: str | None = None,
) -> PlayRecap:
    """Apply the roles of an inventory, with logs in a directory. With `check`, tasks only report what they would change.

    `on_change` receives the name of each task as soon as it has changed something. The password goes to Ansible's
    prompt, and is never in a file, environment, or command line.
    """
    require_ansible()
    import ansible_runner

    failures: list[str] = []
    notes: list[str] = []
    tasks: list[str] = []
    step = ""
    changed = dict.fromkeys(hosts["all"]["hosts"], 0)

    def handle_event(event: dict[str, Any]) -> bool:
        nonlocal step
        data = event.get("event_data", {})
        result = data.get("res") or {}
        if event["event"] == "playbook_on_task_start":
            step = str(data.get("task", ""))
            report(step)
        elif event["event"] in ("runner_on_failed", "runner_on_unreachable"):
            if not data.get("ignore_errors"):
                failures.append(describe_failure(data))
            elif check:  # the tasks before it would have provided what it needs
                tasks.append(str(data.get("task", "")))
        elif event["event"] == "runner_on_ok" and data.get("task_action") in _DEBUG_ACTIONS:
            for message in (item.get("msg") for item in result.get("results", [result])):
                notes.extend(map(str, message if isinstance(message, list) else [message]))
        elif event["event"] == "runner_on_ok" and result.get("changed"):
            changed[data["host"]] += 1
            tasks.append(str(data.get("task", "")))
            if on_change is not None:
                on_change(tasks[-1])
        return False  # do not save the event, because a task's output may be confidential

    options = [*(["--check"] if check else []), *(["--ask-become-pass"] if sudo_password else [])]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with _connection_directory() as sockets, _hide_secrets():
            done = ansible_runner.run(
                private_data_dir=str(directory),
                project_dir=str(_PLAYBOOK),
                playbook="site.yaml",
                inventory=hosts,
                envvars={**_ansible_settings(directory, sockets), **(settings or {})},
                event_handler=handle_event,
                cmdline=" ".join(options) or None,
                passwords={_SUDO_PROMPT: sudo_password} if sudo_password else None,
                quiet=True,
                rotate_artifacts=5,
                suppress_env_files=True,  # one would contain the password
            )
    except OSError as error:
        if error.errno not in DISK_FULL_ERRORS:
            raise
        raise full_disk_error(directory, step) from error
    if failures:
        raise GpuyardError(failures[0])
    if done.status != "successful":
        where = f"at the step {step!r}" if step else "before its first step"
        raise GpuyardError(
            f"Ansible stopped {where} without an error message ({done.status}, exit status {done.rc}); run it again: it "
            f"continues where it stopped. Its output is in {directory / 'artifacts'}"
        )
    return PlayRecap(changed, tuple(notes), tuple(tasks))


def get_roles(deployment: Deployment, index: int) -> Sequence[RoleName]:
    """Return the roles of a host; the first host is the head."""
    return deployment.head if index == 0 else deployment.workers


def build_inventory(
    deployment: Deployment, hosts: Sequence[Host], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return Ansible's inventory. Raises if a value is a template, because Ansible would run it on this machine."""
    inventory = {
        "all": {
            "hosts": {
                host.name: {
                    "gpuyard_address": host.cluster_address,
                    "gpuyard_roles": list(get_roles(deployment, index)),
                    "gpuyard_ports": get_ports(get_roles(deployment, index), head=index == 0),
                }
                for index, host in enumerate(hosts)
            },
            "vars": {
                "gpuyard_head": hosts[0].name,
                "gpuyard_name": deployment.name,
                "gpuyard_shared": deployment.shared,
                "gpuyard_users": [user.model_dump(mode="json") for user in deployment.users],
                "ansible_python_interpreter": "/usr/bin/python3",
                **variables,
            },
        }
    }
    reject_templates(inventory)
    return inventory


def reject_templates(value: Any) -> None:
    """Raise if the value contains a template."""
    if isinstance(value, Mapping):
        reject_templates([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            reject_templates(item)
    elif isinstance(value, str) and any(mark in value for mark in _TEMPLATE_MARKS):
        raise GpuyardError(
            f"{value!r} cannot be passed to Ansible, which would run it as a template; choose another name or path"
        )


@contextmanager
def _connection_directory() -> Iterator[Path]:
    """Create a directory for ssh connections that stay open between tasks, and close them after the run.

    Each run has its own, because Ansible tells connections apart by host name, and two deployments may share names.
    """
    with temporary_directory(shared_directory(), "ssh") as sockets:
        try:
            yield sockets
        finally:
            for socket in sockets.iterdir():
                if socket.is_socket():
                    argv = ("ssh", "-O", "exit", "-o", f"ControlPath={socket}", "any")
                    with suppress(subprocess.TimeoutExpired):
                        subprocess.run(argv, capture_output=True, check=False, timeout=10)


@contextmanager
def _hide_secrets() -> Iterator[None]:
    """Remove the variables that Ansible does not need from this process's environment for a while."""
    original = dict(os.environ)
    for name, value in original.items():
        allowed = name in _ALLOWED_VARIABLES or name.startswith(_ALLOWED_PREFIXES)
        allowed |= name in _MIRROR_VARIABLES and "@" not in value
        if not allowed or name.endswith(("PASSWORD", "_PASS")):
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(original)


def _ansible_settings(directory: Path, sockets: Path) -> dict[str, str]:
    programs = Path(sys.executable).parent  # ansible-playbook is next to this Python
    return {
        # ansible-runner turns checking off, and this connection carries the sudo password and the munge key.
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_SSH_HOST_KEY_CHECKING": "True",
        "ANSIBLE_ROLES_PATH": str(_PLAYBOOK / "roles"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_LIBRARY": str(_PLAYBOOK / "modules"),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_LOCAL_TEMP": str(directory / "tmp"),
        "ANSIBLE_REMOTE_TEMP": _REMOTE_TEMP,
        # Without a timeout, a task that waits for a dead server would wait forever.
        _TIMEOUT_VARIABLE: os.environ.get(_TIMEOUT_VARIABLE, str(_TASK_TIMEOUT_SECONDS)),
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
    }


def describe_failure(data: Mapping[str, Any]) -> str:
    """Return the message for an Ansible event about a failed task or an unreachable machine."""
    result = data.get("res") or {}
    parts = [result.get(key) for key in ("msg", "stderr", "stdout")]
    output = " ".join("; ".join(str(part) for part in parts if part).split()) or "no output"
    cause = next(
        ((match, advice) for pattern, advice in _CAUSES if (match := pattern.search(output))), None
    )
    excerpt = _shorten(output, cause[0].end() if cause else 0)
    host, step = data.get("host", "a host"), data.get("task", "a task")
    if "Host key verification failed" in output:
        return f"{host}: ssh refused its host key at the step {step!r}; run it again, and it says what to do"
    # Ansible also reports a machine as unreachable if it cannot create its directory on a full disk.
    if result.get("unreachable") and not _FULL_DISK.search(output):
        return (
            f"{host} is unreachable at the step {step!r}: {excerpt}. Check that it is up and that you can log in with "
            f"ssh, {_RETRY}"
        )
    if limit := (result.get("timedout") or {}).get("period"):
        return (
            f"{host}: {step!r} timed out after {limit} s. It waits for something that does not answer, such as a mount "
            f"whose server is gone: find it with `findmnt` and `ps` on that machine and fix it, {_RETRY}"
        )
    advice = cause[1] if cause else ""
    return f"{host}: {step!r} failed: {excerpt}" + (
        f". {advice[0].upper()}{advice[1:]}" if advice else ""
    )


def _shorten(output: str, cause_end: int) -> str:
    """Return the beginning of the output and, if the cause comes later, the part that ends with it."""
    if len(output) <= _MAX_EXCERPT:
        return output.rstrip(".:")
    if cause_end <= _MAX_EXCERPT:
        return output[:_MAX_EXCERPT] + "…"
    half = _MAX_EXCERPT // 2
    return f"{output[:half]}… …{output[cause_end - half : cause_end]}"
