"""The playbook, run by ansible-runner on a deployment's hosts; what failed on which machine at which step is one sentence
with the next thing to try."""

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuyard.deploy.ports import ports_of
from gpuyard.deploy.state import FULL, Host, StateDirectory, full_disk
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.specs.deployment import Deployment, RoleName
from gpuyard.temporary import held_directory, shared_directory

Tell = Callable[[str], None]
_PLAYBOOK = Path(__file__).parent
_TEMPLATE_MARKS = ("{{", "{%", "{#")
_SAYING = ("debug", "ansible.builtin.debug")
_KEPT_OPEN = "-o ControlMaster=auto -o ControlPersist=60s"
_REMOTE_TEMP = "~/.ansible/tmp"
# tasks that fetch or build packages name a longer one
_TASK_SECONDS = 300
_LIMIT = "ANSIBLE_TASK_TIMEOUT"
_SUDO_PROMPT = r"BECOME password:\s*$"
# ansible-runner writes down the environment that it finds, and a user's may hold keys of clouds
_PASSED_ON = (
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
_PASSED_ON_PREFIXES = ("ANSIBLE_", "GPUYARD_", "LC_")
# where packages come from, for roles that are applied to this machine; an address may hold a password before its "@"
_MIRRORS = (
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
_WORDS = 300  # of what a failed task has said
_AGAIN = "then run it again: it continues where it stopped"
_FULL_DISK = re.compile(r"no space left on device|enough free space|disk quota", re.IGNORECASE)
_CAUSES = (
    (
        re.compile(r"(?:incorrect|wrong) sudo password", re.IGNORECASE),
        "sudo took no such password there: give the right one with --ask-sudo-password or GPUYARD_SUDO_PASSWORD, the same "
        "for every machine",
    ),
    (
        re.compile(r"missing sudo password|sudo: a password is required", re.IGNORECASE),
        "sudo wants a password there: give it with --ask-sudo-password or GPUYARD_SUDO_PASSWORD",
    ),
    (
        _FULL_DISK,
        f"a disk of this machine is full: make room on it, {_AGAIN}",
    ),
    (
        re.compile(
            r"failed to (?:fetch|update apt cache)|unable to fetch|could ?n[o']t (?:connect to|resolve) |"
            r"temporary failure (?:in name resolution|resolving)|could not find a version",
            re.IGNORECASE,
        ),
        f"this machine does not get its packages: look whether it reaches the mirror that its apt or pip names, {_AGAIN}",
    ),
)


@dataclass(frozen=True)
class PlayRecap:
    """Tasks that changed something, by host, and what roles have to say to people."""

    changed: Mapping[str, int]
    notes: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    """Names of those that changed something, or would."""

    @property
    def changes(self) -> int:
        return sum(self.changed.values())


def apply_roles(
    deployment: Deployment,
    hosts: Sequence[Host],
    state: StateDirectory,
    variables: Mapping[str, Any],
    tell: Tell,
    *,
    sudo_password: str | None = None,
) -> PlayRecap:
    """Bring every host to what its roles say; a second time changes nothing. Raises with the first failure."""
    # ssh takes what it must know of hosts from the deployment's own file
    ssh = f"-F {shlex.quote(str(state.ssh_config))} -o BatchMode=yes -o ConnectTimeout=20 {_KEPT_OPEN}"
    return play(
        state.ansible,
        inventory(deployment, hosts, variables),
        tell,
        settings={"ANSIBLE_SSH_ARGS": ssh},
        sudo_password=sudo_password,
    )


def play(
    directory: Path,
    hosts: Mapping[str, Any],
    tell: Tell,
    *,
    settings: Mapping[str, str] | None = None,
    check: bool = False,
    remember: Tell | None = None,
    sudo_password: str | None = None,
) -> PlayRecap:
    """The roles of an inventory, with logs in a directory. With `check`, tasks say what they would change.

    `remember` is told each task that has changed something, when it has. A password goes to Ansible's prompt, and is in
    no file, environment or command line.
    """
    if importlib.util.find_spec("ansible_runner") is None:
        raise MissingRequirement(
            "machines are configured by Ansible, which is not installed: pip install 'gpuyard[deploy]'"
        )
    import ansible_runner

    failures: list[str] = []
    notes: list[str] = []
    tasks: list[str] = []
    step = ""
    changed = dict.fromkeys(hosts["all"]["hosts"], 0)

    def hear(event: dict[str, Any]) -> bool:
        nonlocal step
        data = event.get("event_data", {})
        result = data.get("res") or {}
        if event["event"] == "playbook_on_task_start":
            step = str(data.get("task", ""))
            tell(step)
        elif event["event"] in ("runner_on_failed", "runner_on_unreachable"):
            if not data.get("ignore_errors"):
                failures.append(failure(data))
            elif check:  # what it needs would be there after the tasks before it
                tasks.append(str(data.get("task", "")))
        elif event["event"] == "runner_on_ok" and data.get("task_action") in _SAYING:
            said = result.get("msg")
            notes.extend(map(str, said if isinstance(said, list) else [said]))
        elif event["event"] == "runner_on_ok" and result.get("changed"):
            changed[data["host"]] += 1
            tasks.append(str(data.get("task", "")))
            if remember is not None:
                remember(tasks[-1])
        return False  # events are not kept: what a task has said may not be for everybody

    options = [*(["--check"] if check else []), *(["--ask-become-pass"] if sudo_password else [])]
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        with _connections() as sockets, _without_secrets():
            done = ansible_runner.run(
                private_data_dir=str(directory),
                project_dir=str(_PLAYBOOK),
                playbook="site.yaml",
                inventory=hosts,
                envvars={**_environment(directory, sockets), **(settings or {})},
                event_handler=hear,
                cmdline=" ".join(options) or None,
                passwords={_SUDO_PROMPT: sudo_password} if sudo_password else None,
                quiet=True,
                rotate_artifacts=5,
                suppress_env_files=True,  # else the password would be in one
            )
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise full_disk(directory, step) from error
    if failures:
        raise GpuyardError(failures[0])
    if done.status != "successful":
        where = f"at the step {step!r}" if step else "before its first step"
        raise GpuyardError(
            f"Ansible ended {where} without a word of what failed ({done.status}, exit status {done.rc}); run it again: it "
            f"continues where it stopped. What it printed is in {directory / 'artifacts'}"
        )
    return PlayRecap(changed, tuple(notes), tuple(tasks))


def roles_of(deployment: Deployment, index: int) -> Sequence[RoleName]:
    """The first host is the head."""
    return deployment.head if index == 0 else deployment.workers


def inventory(
    deployment: Deployment, hosts: Sequence[Host], variables: Mapping[str, Any]
) -> dict[str, Any]:
    """As a value; nothing in it is a template, for Ansible would run one here."""
    made = {
        "all": {
            "hosts": {
                host.name: {
                    "gpuyard_address": host.inside,
                    "gpuyard_roles": list(roles_of(deployment, index)),
                    "gpuyard_ports": ports_of(roles_of(deployment, index), head=index == 0),
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
    refuse_templates(made)
    return made


def refuse_templates(value: Any) -> None:
    """Raises where something in it is one."""
    if isinstance(value, Mapping):
        refuse_templates([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for one in value:
            refuse_templates(one)
    elif isinstance(value, str) and any(mark in value for mark in _TEMPLATE_MARKS):
        raise GpuyardError(
            f"{value!r} can't be given to Ansible, which would take it for a template and run it; choose another "
            "name or place for it"
        )


@contextmanager
def _connections() -> Iterator[Path]:
    """Where ssh keeps one connection a host open from task to task; they end with the run.

    A directory of this run alone: Ansible tells connections apart by the names of hosts, which two deployments may share.
    """
    with held_directory(shared_directory(), "ssh") as sockets:
        try:
            yield sockets
        finally:
            for socket in sockets.iterdir():
                if socket.is_socket():
                    argv = ("ssh", "-O", "exit", "-o", f"ControlPath={socket}", "any")
                    with suppress(subprocess.TimeoutExpired):
                        subprocess.run(argv, capture_output=True, check=False, timeout=10)


@contextmanager
def _without_secrets() -> Iterator[None]:
    """This process's environment, without what Ansible has no use for."""
    whole = dict(os.environ)
    for name, value in whole.items():
        wanted = name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
        wanted |= name in _MIRRORS and "@" not in value
        if not wanted or name.endswith(("PASSWORD", "_PASS")):
            del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(whole)


def _environment(directory: Path, sockets: Path) -> dict[str, str]:
    """Ansible's settings."""
    programs = Path(sys.executable).parent  # ansible-playbook is beside our Python
    return {
        "ANSIBLE_ROLES_PATH": str(_PLAYBOOK / "roles"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(sockets),
        "ANSIBLE_LIBRARY": str(_PLAYBOOK / "modules"),
        "ANSIBLE_PIPELINING": "True",
        "ANSIBLE_RETRY_FILES_ENABLED": "False",
        "ANSIBLE_LOCAL_TEMP": str(directory / "tmp"),
        "ANSIBLE_REMOTE_TEMP": _REMOTE_TEMP,
        # else one that waits for a server that is gone would wait for ever
        _LIMIT: os.environ.get(_LIMIT, str(_TASK_SECONDS)),
        "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}",
    }


def failure(data: Mapping[str, Any]) -> str:
    """Of an event of Ansible's about a task that failed, or a machine that it does not reach."""
    result = data.get("res") or {}
    parts = [result.get(key) for key in ("msg", "stderr", "stdout")]
    said = "; ".join(str(part) for part in parts if part) or "no words"
    words = " ".join(said.split())
    found = next(
        ((match, advice) for cause, advice in _CAUSES if (match := cause.search(words))), None
    )
    short = _excerpt(words, found[0].end() if found else 0)
    host, step = data.get("host", "a host"), data.get("task", "a task")
    # Ansible says so too where it can't make its own directory on a machine whose disk is full
    if result.get("unreachable") and not _FULL_DISK.search(words):
        return f"{host} can't be reached at the step {step!r}: {short}. See that it is up and that ssh lets you in, {_AGAIN}"
    if limit := (result.get("timedout") or {}).get("period"):
        return (
            f"{host}: {step!r} did not end in {limit} s. What it waits for does not answer, like a mount whose server is "
            f"gone: see with `findmnt` and `ps` there what hangs, and mend it, {_AGAIN}"
        )
    advice = found[1] if found else ""
    return f"{host}: {step!r} failed: {short}" + (
        f". {advice[0].upper()}{advice[1:]}" if advice else ""
    )


def _excerpt(words: str, cause_ends: int) -> str:
    """Of bounded length: the beginning, and where the cause is named later, the words up to it."""
    if len(words) <= _WORDS:
        return words.rstrip(".:")
    if cause_ends <= _WORDS:
        return words[:_WORDS] + "…"
    half = _WORDS // 2
    return f"{words[:half]}… …{words[cause_ends - half : cause_ends]}"
