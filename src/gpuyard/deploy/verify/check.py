"""The types of a verification: a check's result, a group of checks, and the context that runs commands on machines."""

import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from gpuyard.deploy.access.place import create_place
from gpuyard.deploy.access.remote import ssh_argv
from gpuyard.deploy.ansible.run import get_roles
from gpuyard.deploy.deployment import LoadedDeployment
from gpuyard.deploy.state import Host
from gpuyard.run.places.hosts import Hosts
from gpuyard.specs.deployment import RoleName

if TYPE_CHECKING:
    from gpuyard.measure.store import ResultsStore

Result = TypeVar("Result")
TIMEOUT_SECONDS = 60.0
_MAX_THREADS = 16
TIMED_OUT = 124  # the exit status of timeout(1)


@dataclass(frozen=True)
class CheckResult:
    """The result of a check on one machine, or between all."""

    name: str
    host: str
    ok: bool | None
    """None: it was not tried."""
    detail: str

    def document(self) -> dict[str, Any]:
        return {"check": self.name, "host": self.host, "ok": self.ok, "detail": self.detail}


@dataclass(frozen=True)
class Verification:
    """The results of all checks."""

    checks: tuple[CheckResult, ...]

    @property
    def ok(self) -> bool:
        return all(check.ok is not False for check in self.checks)


@dataclass(frozen=True)
class VerificationContext:
    """The reachable machines of a deployment, and the store for measurements."""

    loaded: LoadedDeployment
    hosts: tuple[Host, ...]
    store: "ResultsStore"
    sudo_password: str | None = field(default=None, repr=False)

    @property
    def head(self) -> Host | None:
        """The first machine, or None if it is unreachable."""
        first = self.loaded.state.hosts()[0]
        return first if first in self.hosts else None

    def roles(self, host: Host) -> Sequence[RoleName]:
        return get_roles(self.loaded.deployment, self.index(host))

    def index(self, host: Host) -> int:
        return self.loaded.state.hosts().index(host)

    def hosts_with_role(self, role: RoleName) -> list[Host]:
        return [host for host in self.hosts if role in self.roles(host)]

    def check_each(self, hosts: Sequence[Host], check: Callable[[Host], Result]) -> list[Result]:
        """Run the same check on all of these machines in parallel."""
        if not hosts:
            return []
        with ThreadPoolExecutor(min(_MAX_THREADS, len(hosts))) as pool:
            return list(pool.map(check, hosts))

    def run(self, host: Host, command: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a shell command on a machine; every command here is fixed text, or built from checked names."""
        return run_command((*ssh_argv(self.loaded, host), command), stdin)

    def run_as_root(self, host: Host, command: str) -> "subprocess.CompletedProcess[str]":
        """Run a command that does not read its stdin, because sudo may read the password there."""
        if self.sudo_password is None:
            return self.run(host, f"sudo -n {command}")
        return self.run(host, f"sudo -S -p '' {command}", f"{self.sudo_password}\n")

    @contextmanager
    def start(self, host: Host, command: str) -> "Iterator[subprocess.Popen[str]]":
        """Run a command on a machine in the background."""
        with subprocess.Popen(
            (*ssh_argv(self.loaded, host), command),
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
        """Return these machines as a place to run, with the environment that the role `training` installed."""
        return create_place(self.loaded, hosts, Hosts)


@dataclass(frozen=True)
class CheckGroup:
    """Checks that belong together: of all machines, or of those with one role."""

    description: str
    check: Callable[[VerificationContext], list[CheckResult]]
    role: RoleName | None = None

    def applies(self, context: VerificationContext) -> bool:
        return self.role is None or bool(context.hosts_with_role(self.role))


def run_command(argv: Sequence[str], stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """Run a command; one that hangs, for example on a mount whose server is gone, counts as failed."""
    try:
        return subprocess.run(
            argv, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS, input=stdin
        )
    except subprocess.TimeoutExpired:
        error = f"no answer within {TIMEOUT_SECONDS:.0f} s"
        return subprocess.CompletedProcess(argv, TIMED_OUT, "", error)
