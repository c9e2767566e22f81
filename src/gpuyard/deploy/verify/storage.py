"""Of the shared storage: what the head writes, the others read."""

import secrets

from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, Deployed, last_words

_NAME = "shared directory"


def shared_directory(deployed: Deployed) -> list[CheckResult]:
    hosts = deployed.having("shared-storage")
    if deployed.head not in hosts:
        return []
    token = secrets.token_hex(8)
    path = f"{deployed.opened.deployment.shared}/.gpuyard-verify-{token}"
    head, *others = hosts
    wrote = deployed.run(head, f"echo {token} > {path}")
    found = wrote.returncode == 0
    checks = [CheckResult(_NAME, head.name, found, path if found else last_words(wrote.stderr))]

    def reads(host: Host) -> CheckResult:
        done = deployed.run(host, f"cat {path}")
        same = done.stdout.strip() == token
        seen = last_words(done.stderr) if done.stderr.strip() else "sees another file"
        return CheckResult(_NAME, host.name, same, "sees what the head wrote" if same else seen)

    checks += deployed.each(others, reads)
    deployed.run(head, f"rm -f {path}")
    return checks
