"""Check every machine: it is reachable, its clock is right, and it opens only the ports that its roles declare."""

import time
from collections.abc import Iterator

from gpuyard.deploy.access.host_keys import host_key_error
from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.ports import SSH, get_ports
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, VerificationContext

_MAX_OFFSET_SECONDS = 1.0
_LOOPBACK = ("127.", "[::1]", "::1")


def check_reachable(context: VerificationContext) -> list[CheckResult]:
    """Log in to every machine. Raises if a host key has changed, because another machine may answer."""

    def check(host: Host) -> CheckResult:
        done = context.run(host, "hostname")
        ok = done.returncode == 0
        if not ok and (error := host_key_error(context.loaded.state, done.stderr)):
            raise error
        detail = done.stdout.strip() if ok else last_line(done.stderr)
        return CheckResult("reachable", host.name, ok, detail)

    return context.check_each(context.hosts, check)


def check_clocks(context: VerificationContext) -> list[CheckResult]:
    def check(host: Host) -> CheckResult:
        before = time.time()
        output = context.run(host, "date +%s.%N").stdout.strip()
        after = time.time()
        try:
            remote = float(output)
        except ValueError:
            return CheckResult("in time", host.name, False, "`date` printed no time")
        # The remote clock was read at an unknown moment between `before` and `after`.
        offset = max(before - remote, remote - after, 0.0)
        detail = f"within {after - before + offset:.1f} s of this machine"
        return CheckResult("in time", host.name, offset < _MAX_OFFSET_SECONDS, detail)

    return context.check_each(context.hosts, check)


def check_time_services(context: VerificationContext) -> list[CheckResult]:
    """Check chrony, unless the machines share the clock of a host that is synchronized already."""
    if context.loaded.target.ansible_variables().get("gpuyard_clock_is_kept"):
        return []

    def check(host: Host) -> CheckResult:
        done = context.run(host, "chronyc -n tracking")
        ok, detail = parse_chrony_tracking(done.stdout)
        return CheckResult("time service", host.name, ok, detail)

    return context.check_each(context.hosts_with_role("base"), check)


def parse_chrony_tracking(output: str) -> tuple[bool, str]:
    """Return whether the clock is synchronized, and a description, from `chronyc tracking`."""
    fields = {
        name.strip(): value.strip()
        for name, _, value in (line.partition(":") for line in output.splitlines())
    }
    leap, offset = fields.get("Leap status"), fields.get("System time", "").split(" ")[0]
    try:
        seconds = float(offset)
    except ValueError:
        return False, "chrony does not answer"
    detail = f"chrony: {leap}, {seconds:.6f} s off"
    return leap == "Normal" and seconds < _MAX_OFFSET_SECONDS, detail


def check_ports(context: VerificationContext) -> list[CheckResult]:
    def check(host: Host) -> CheckResult:
        declared = {SSH, *get_ports(context.roles(host), head=context.index(host) == 0)}
        open_ports = sorted(set(parse_listening_ports(context.run(host, "ss -Hltn").stdout)))
        extra = [port for port in open_ports if port not in declared]
        detail = f"open: {', '.join(map(str, open_ports)) or 'none'}"
        if extra:
            detail += f"; not declared: {', '.join(map(str, extra))}"
        return CheckResult("open ports", host.name, not extra and bool(open_ports), detail)

    return context.check_each(context.hosts, check)


def parse_listening_ports(output: str) -> Iterator[int]:
    """Yield the ports that other machines can reach, from `ss -Hltn`."""
    for line in output.splitlines():
        fields = line.split()
        if len(fields) < 4:
            continue
        address, _, port = fields[3].rpartition(":")
        if not address.startswith(_LOOPBACK) and port.isdigit():
            yield int(port)
