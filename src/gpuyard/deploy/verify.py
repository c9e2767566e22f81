"""Whether what was deployed works: each check runs on the machines themselves and says what it found."""

import secrets
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuyard.deploy.ansible.run import roles_of
from gpuyard.deploy.deployment import Opened
from gpuyard.deploy.state import Host
from gpuyard.errors import GpuyardError
from gpuyard.hardware.clusters import machine_of
from gpuyard.interpreter import import_path, module_argv
from gpuyard.run.places.hosts import Hosts
from gpuyard.units import format_bit_rate

if TYPE_CHECKING:
    from gpuyard.measure.collectives.records import CollectivesBench

Tell = Callable[[str], None]
_SECONDS = 60.0
_MOST_OFFSET_SECONDS = 1.0
_PORTS = {
    "slurm": ((6817, 6818), (6818,))
}  # of the head, and of the others; ssh is every machine's
_SSH = 22
_LOOPBACK = ("127.", "[::1]", "::1")
_EXCHANGED_BYTES = 8_000_000
_PYTHON = "/opt/gpuyard/venv/bin/python"


@dataclass(frozen=True)
class Check:
    """One thing that must hold, on one machine or between all."""

    name: str
    host: str
    ok: bool
    found: str

    def document(self) -> dict[str, Any]:
        return {"check": self.name, "host": self.host, "ok": self.ok, "found": self.found}


@dataclass(frozen=True)
class Verdict:
    """All checks, and what was measured."""

    checks: tuple[Check, ...]
    bench: "CollectivesBench | None" = None

    @property
    def ok(self) -> bool:
        return all(check.ok for check in self.checks)


def verify(opened: Opened, tell: Tell) -> Verdict:
    """Everything that the roles promise; a machine that can't be reached fails its own checks only."""
    hosts = opened.state.hosts()
    if not hosts:
        raise GpuyardError(
            f"{opened.deployment.name!r} is not up yet; bring it up with: gpuyard deploy up FILE"
        )
    tell("Reaching every machine")
    reached = _each(hosts, lambda host: _reachable(opened, host))
    checks = list(reached)
    there = [host for host, check in zip(hosts, reached, strict=True) if check.ok]
    tell("Comparing clocks and open ports")
    checks += _each(there, lambda host: _in_time(opened, host))
    checks += _each(there, lambda host: _ports(opened, host))
    with_storage = [h for h in there if "shared-storage" in _roles(opened, hosts, h)]
    if with_storage and hosts[0] in with_storage:
        tell("Reading the shared directory on every machine")
        checks += _shared(opened, with_storage)
    with_slurm = [h for h in there if "slurm" in _roles(opened, hosts, h)]
    if with_slurm and hosts[0] in with_slurm:
        tell("Running a job on every machine through Slurm")
        checks.append(_slurm(opened, with_slurm))
    training = [host for host in there if "training" in _roles(opened, hosts, host)]
    bench = None
    if training:
        tell("Starting gpuyard on every machine")
        able = _each(training, lambda host: _can_train(opened, host))
        checks += able
        if len(training) > 1 and all(check.ok for check in able):
            tell("Exchanging gradients between all machines")
            check, bench = _exchange(opened, training)
            checks.append(check)
    return Verdict(tuple(checks), bench)


def _each(hosts: Sequence[Host], check: Callable[[Host], Check]) -> list[Check]:
    if not hosts:
        return []
    with ThreadPoolExecutor(min(16, len(hosts))) as pool:
        return list(pool.map(check, hosts))


def _roles(opened: Opened, hosts: Sequence[Host], host: Host) -> Sequence[str]:
    return roles_of(opened.deployment, hosts.index(host))


def run_on(opened: Opened, host: Host, line: str) -> "subprocess.CompletedProcess[str]":
    """One line for the shell of a machine; every line here is fixed text, or made of checked names."""
    argv = ("ssh", "-F", str(opened.state.ssh_config), "-o", "BatchMode=yes")
    return subprocess.run(
        (*argv, "-o", "ConnectTimeout=10", "--", host.name, line),
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        stdin=subprocess.DEVNULL,
    )


def _reachable(opened: Opened, host: Host) -> Check:
    try:
        done = run_on(opened, host, "hostname")
    except subprocess.TimeoutExpired:
        return Check("reachable", host.name, False, f"no answer in {_SECONDS:.0f} s")
    found = done.stdout.strip() if done.returncode == 0 else _last(done.stderr)
    return Check("reachable", host.name, done.returncode == 0, found)


def _in_time(opened: Opened, host: Host) -> Check:
    before = time.time()
    said = run_on(opened, host, "date +%s.%N").stdout.strip()
    after = time.time()
    try:
        there = float(said)
    except ValueError:
        return Check("in time", host.name, False, "it did not say its time")
    offset = max(before - there, there - after, 0.0)  # between asking and hearing nobody knows
    words = f"within {after - before + offset:.1f} s of this machine"
    return Check("in time", host.name, offset < _MOST_OFFSET_SECONDS, words)


def _ports(opened: Opened, host: Host) -> Check:
    """Only what is declared is open to others."""
    hosts = opened.state.hosts()
    index = hosts.index(host)
    roles = roles_of(opened.deployment, index)
    declared = {_SSH, *(p for r in roles if r in _PORTS for p in _PORTS[r][min(index, 1)])}
    said = run_on(opened, host, "ss -Hltn").stdout
    open_ports = sorted(set(_listening(said)))
    extra = [port for port in open_ports if port not in declared]
    words = f"open: {', '.join(map(str, open_ports)) or 'none'}"
    if extra:
        words += f"; not declared: {', '.join(map(str, extra))}"
    return Check("open ports", host.name, not extra and bool(open_ports), words)


def _listening(said: str) -> Iterator[int]:
    for line in said.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        address, _, port = fields[3].rpartition(":")
        if not address.startswith(_LOOPBACK) and port.isdigit():
            yield int(port)


def _shared(opened: Opened, hosts: Sequence[Host]) -> list[Check]:
    """What the head writes, the others read."""
    token = secrets.token_hex(8)
    path = f"{opened.deployment.shared}/.gpuyard-verify-{token}"
    head, *others = hosts
    wrote = run_on(opened, head, f"echo {token} > {path}")
    found = wrote.returncode == 0
    checks = [Check("shared directory", head.name, found, path if found else _last(wrote.stderr))]
    for host in others:
        done = run_on(opened, host, f"cat {path}")
        same = done.stdout.strip() == token
        words = "sees what the head wrote" if same else _last(done.stderr) or "sees another file"
        checks.append(Check("shared directory", host.name, same, words))
    run_on(opened, head, f"rm -f {path}")
    return checks


def _slurm(opened: Opened, hosts: Sequence[Host]) -> Check:
    """A job on all of them at once sees every GPU that the cluster has."""
    _, machine = machine_of(opened.cluster)
    nodes, gpus = len(hosts), machine.gpus
    line = (
        f"timeout 45 srun --nodes={nodes} --ntasks-per-node=1 --gres=gpu:{gpus} "
        "printenv CUDA_VISIBLE_DEVICES"
    )
    done = run_on(opened, hosts[0], line)
    wanted = [",".join(map(str, range(gpus)))] * nodes
    seen = done.stdout.split()
    ok = done.returncode == 0 and seen == wanted
    words = f"{nodes} × {gpus} GPUs" if ok else _last(done.stderr) or f"saw {' and '.join(seen)}"
    return Check("a job on all nodes", "all", ok, words)


def _place(opened: Opened, hosts: Sequence[Host]) -> Hosts:
    """These machines as a place to run in, with the environment that the role `training` gave them."""
    installed = opened.target.environment(opened.deployment) is None
    return Hosts(
        tuple(host.name for host in hosts),
        ssh_config=opened.state.ssh_config,
        python=_PYTHON if installed else None,
        directory="/",
    )


def _can_train(opened: Opened, host: Host) -> Check:
    argv = _place(opened, [host]).command(0, [*module_argv("gpuyard"), "--version"], import_path())
    done = subprocess.run(
        argv.argv,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        stdin=subprocess.DEVNULL,
    )
    words = done.stdout.strip() or _last(done.stderr)
    return Check("training environment", host.name, done.returncode == 0, words)


def _exchange(opened: Opened, hosts: Sequence[Host]) -> "tuple[Check, CollectivesBench | None]":
    """All-reduce between all machines, against what the model expects of the network."""
    from gpuyard.measure.collectives.plan import plan_collectives
    from gpuyard.measure.collectives.run import run_collectives

    name = "all-reduce between all"
    network = opened.cluster.network
    try:
        plan = plan_collectives(
            _place(opened, hosts),
            len(hosts),
            ["all_reduce"],
            [_EXCHANGED_BYTES],
            link_bytes_per_second=None if network is None else network.rate,
            repeats=3,
        )
        bench = run_collectives(plan)
    except GpuyardError as error:
        return Check(name, "all", False, str(error)), None
    (result,) = bench.results
    words = f"{format_bit_rate(result.bus_bytes_per_second)}, {result.ratio:.0%} of what the model expects"
    causes = [cause.why for finding in bench.findings for cause in finding.causes]
    ok = result.correct and result.verdict == "normal"
    return Check(name, "all", ok, "; ".join([words, *causes[:1]])), bench


def _last(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:300] if lines else "no words"
