"""What a check is, what it may ask the machines, and what comes of all of them."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuyard.deploy.access.remote import ssh_argv
from gpuyard.deploy.ansible.run import roles_of
from gpuyard.deploy.deployment import Opened
from gpuyard.deploy.state import Host
from gpuyard.run.places.hosts import Hosts
from gpuyard.specs.deployment import RoleName

if TYPE_CHECKING:
    from gpuyard.measure.store import ResultsStore

Tell = Callable[[str], None]
SECONDS = 60.0
_AT_ONCE = 16
_WORDS = 300
_TIMED_OUT = 124  # as timeout(1) says it
PYTHON = "/opt/gpuyard/venv/bin/python"


@dataclass(frozen=True)
class CheckResult:
    """One thing that must hold, on one machine or between all."""

    name: str
    host: str
    ok: bool
    found: str

    def document(self) -> dict[str, Any]:
        return {"check": self.name, "host": self.host, "ok": self.ok, "found": self.found}


@dataclass(frozen=True)
class Verification:
    """All checks."""

    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class Deployed:
    """The machines that answer, and where measurements are kept."""

    opened: Opened
    hosts: tuple[Host, ...]
    store: "ResultsStore"
    sudo_password: str | None = field(default=None, repr=False)

    @property
    def head(self) -> Host | None:
        """None where it does not answer."""
        first = self.opened.state.hosts()[0]
        return first if first in self.hosts else None

    def roles(self, host: Host) -> Sequence[RoleName]:
        return roles_of(self.opened.deployment, self.index(host))

    def index(self, host: Host) -> int:
        return self.opened.state.hosts().index(host)

    def having(self, role: RoleName) -> list[Host]:
        return [host for host in self.hosts if role in self.roles(host)]

    def each(
        self, hosts: Sequence[Host], check: Callable[[Host], CheckResult]
    ) -> list[CheckResult]:
        """The same on all of them at once."""
        if not hosts:
            return []
        with ThreadPoolExecutor(min(_AT_ONCE, len(hosts))) as pool:
            return list(pool.map(check, hosts))

    def run(self, host: Host, line: str) -> "subprocess.CompletedProcess[str]":
        return run_on(self.opened, host, line)

    def run_as_root(self, host: Host, line: str) -> "subprocess.CompletedProcess[str]":
        """Of a line that reads nothing: sudo reads its password there."""
        if self.sudo_password is None:
            return run_on(self.opened, host, f"sudo -n {line}")
        return run_on(self.opened, host, f"sudo -S -p '' {line}", f"{self.sudo_password}\n")

    @contextmanager
    def started(self, host: Host, line: str) -> "Iterator[subprocess.Popen[str]]":
        """A line that runs there meanwhile."""
        with subprocess.Popen(
            (*ssh_argv(self.opened, host), line),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.terminate()

    def place(self, hosts: Sequence[Host]) -> Hosts:
        """These machines as a place to run in, with the environment that the role `training` gave them."""
        installed = self.opened.target.environment(self.opened.deployment) is None
        return Hosts(
            tuple(host.name for host in hosts),
            ssh_config=self.opened.state.ssh_config,
            python=PYTHON if installed else None,
            directory="/",
        )


@dataclass(frozen=True)
class CheckGroup:
    """Checks that belong together: all machines', or those of one role."""

    says: str
    check: Callable[[Deployed], list[CheckResult]]
    role: RoleName | None = None

    def applies(self, deployed: Deployed) -> bool:
        return self.role is None or bool(deployed.having(self.role))


def run_on(
    opened: Opened, host: Host, line: str, given: str = ""
) -> "subprocess.CompletedProcess[str]":
    """One line for the shell of a machine; every line here is fixed text, or made of checked names."""
    return answer_of((*ssh_argv(opened, host), line), given)


def answer_of(argv: Sequence[str], given: str = "") -> "subprocess.CompletedProcess[str]":
    """One that hangs, on a mount whose server is gone for instance, has failed like one that says so."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=SECONDS, input=given
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(argv, _TIMED_OUT, "", f"no answer in {SECONDS:.0f} s")


def last_words(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:_WORDS] if lines else "no words"
