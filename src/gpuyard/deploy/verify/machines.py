"""Of every machine: it answers, its clock is right, and only what is declared is open to others."""

import time
from collections.abc import Iterator

from gpuyard.deploy.ports import SSH, ports_of
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, Deployed, last_words

_MOST_OFFSET_SECONDS = 1.0
_LOOPBACK = ("127.", "[::1]", "::1")


def reached(deployed: Deployed) -> list[CheckResult]:
    return deployed.each(deployed.hosts, lambda host: _reachable(deployed, host))


def clocks(deployed: Deployed) -> list[CheckResult]:
    return deployed.each(deployed.hosts, lambda host: _in_time(deployed, host))


def synchronisation(deployed: Deployed) -> list[CheckResult]:
    """A time service keeps each clock; not where machines have the clock of one that is in time already."""
    if deployed.opened.target.ansible_variables().get("gpuyard_clock_is_kept"):
        return []

    def kept(host: Host) -> CheckResult:
        done = deployed.run(host, "chronyc -n tracking")
        ok, words = synchronised(done.stdout)
        return CheckResult("time service", host.name, ok, words)

    return deployed.each(deployed.having("base"), kept)


def synchronised(tracking: str) -> tuple[bool, str]:
    """What `chronyc tracking` says."""
    said = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in tracking.splitlines())
    }
    leap, offset = said.get("Leap status"), said.get("System time", "").split(" ")[0]
    try:
        seconds = float(offset)
    except ValueError:
        return False, "chrony does not answer"
    words = f"chrony: {leap}, {seconds:.6f} s off"
    return leap == "Normal" and seconds < _MOST_OFFSET_SECONDS, words


def ports(deployed: Deployed) -> list[CheckResult]:
    return deployed.each(deployed.hosts, lambda host: _ports(deployed, host))


def _reachable(deployed: Deployed, host: Host) -> CheckResult:
    done = deployed.run(host, "hostname")
    found = done.stdout.strip() if done.returncode == 0 else last_words(done.stderr)
    return CheckResult("reachable", host.name, done.returncode == 0, found)


def _in_time(deployed: Deployed, host: Host) -> CheckResult:
    before = time.time()
    said = deployed.run(host, "date +%s.%N").stdout.strip()
    after = time.time()
    try:
        there = float(said)
    except ValueError:
        return CheckResult("in time", host.name, False, "it did not say its time")
    offset = max(before - there, there - after, 0.0)  # between asking and hearing nobody knows
    words = f"within {after - before + offset:.1f} s of this machine"
    return CheckResult("in time", host.name, offset < _MOST_OFFSET_SECONDS, words)


def _ports(deployed: Deployed, host: Host) -> CheckResult:
    declared = {SSH, *ports_of(deployed.roles(host), head=deployed.index(host) == 0)}
    said = deployed.run(host, "ss -Hltn").stdout
    open_ports = sorted(set(listening(said)))
    extra = [port for port in open_ports if port not in declared]
    words = f"open: {', '.join(map(str, open_ports)) or 'none'}"
    if extra:
        words += f"; not declared: {', '.join(map(str, extra))}"
    return CheckResult("open ports", host.name, not extra and bool(open_ports), words)


def listening(said: str) -> Iterator[int]:
    """Ports that others reach, of what `ss` says."""
    for line in said.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        address, _, port = fields[3].rpartition(":")
        if not address.startswith(_LOOPBACK) and port.isdigit():
            yield int(port)
