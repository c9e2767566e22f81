"""Of the firewall: a port that no role opens can't be reached, even where something listens."""

from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, Deployed, last_words

_NAME = "firewall"
_PORT = 8099
# listens for a moment, and says when it does
_LISTEN = "import os, socket; s = socket.create_server(('', {port})); s.settimeout(6); os.write(1, b'ready\\n'); s.accept()"
_KNOCK = "import socket; socket.create_connection(('{address}', {port}), 2)"


def shut(deployed: Deployed) -> list[CheckResult]:
    return deployed.each(deployed.having("firewall"), lambda host: _shut(deployed, host))


def _shut(deployed: Deployed, host: Host) -> CheckResult:
    rules = deployed.run_as_root(host, "nft list chain inet gpuyard input")
    if rules.returncode != 0:
        return CheckResult(_NAME, host.name, False, last_words(rules.stderr))
    if "policy drop" not in rules.stdout:
        return CheckResult(_NAME, host.name, False, "lets in what no rule names")
    others = [other for other in deployed.hosts if other != host]
    if not others:
        return CheckResult(_NAME, host.name, True, "drops what no rule names")
    with deployed.started(host, f'python3 -c "{_LISTEN.format(port=_PORT)}"') as listening:
        if (listening.stdout.readline() if listening.stdout else "").strip() != "ready":
            return CheckResult(_NAME, host.name, False, f"port {_PORT} can't be tried")
        knock = _KNOCK.format(address=host.inside, port=_PORT)
        reached = deployed.run(others[0], f'python3 -c "{knock}"').returncode == 0
    words = "a port that is not declared can" + ("" if reached else "'t") + " be reached"
    return CheckResult(_NAME, host.name, not reached, f"{words} from {others[0].name}")
