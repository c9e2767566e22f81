"""Check the firewall: a port that no role opens is unreachable, even if a program listens on it."""

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, VerificationContext

_NAME = "firewall"
_PORT = 8099
# Listens for a few seconds, and prints when it is ready.
_LISTEN = "import os, socket; s = socket.create_server(('', {port})); s.settimeout(6); os.write(1, b'ready\\n'); s.accept()"
_CONNECT = "import socket; socket.create_connection(('{address}', {port}), 2)"


def check_firewall(context: VerificationContext) -> list[CheckResult]:
    return context.check_each(
        context.hosts_with_role("firewall"), lambda host: _check_host(context, host)
    )


def _check_host(context: VerificationContext, host: Host) -> CheckResult:
    rules = context.run_as_root(host, "nft list chain inet gpuyard input")
    if rules.returncode != 0:
        return CheckResult(_NAME, host.name, False, last_line(rules.stderr))
    if "policy drop" not in rules.stdout:
        return CheckResult(_NAME, host.name, False, "accepts traffic that no rule allows")
    others = [other for other in context.hosts if other != host]
    if not others:
        return CheckResult(_NAME, host.name, True, "drops traffic that no rule allows")
    with context.start(host, f'python3 -c "{_LISTEN.format(port=_PORT)}"') as listener:
        if (listener.stdout.readline() if listener.stdout else "").strip() != "ready":
            return CheckResult(_NAME, host.name, False, f"cannot listen on port {_PORT} to test it")
        connect = _CONNECT.format(address=host.cluster_address, port=_PORT)
        reached = context.run(others[0], f'python3 -c "{connect}"').returncode == 0
    verb = "can" if reached else "cannot"
    return CheckResult(
        _NAME, host.name, not reached, f"{others[0].name} {verb} reach a port that no role opens"
    )
