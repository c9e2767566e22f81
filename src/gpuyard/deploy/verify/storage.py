"""Check the shared storage: every machine reads what the head writes."""

import secrets

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, VerificationContext

_NAME = "shared directory"


def check_shared_directory(context: VerificationContext) -> list[CheckResult]:
    hosts = context.hosts_with_role("shared-storage")
    if context.head not in hosts:
        return []
    token = secrets.token_hex(8)
    path = f"{context.loaded.deployment.shared}/.gpuyard-verify-{token}"
    head, *others = hosts
    write = context.run(head, f"echo {token} > {path}")
    ok = write.returncode == 0
    checks = [CheckResult(_NAME, head.name, ok, path if ok else last_line(write.stderr))]

    def check_read(host: Host) -> CheckResult:
        read = context.run(host, f"cat {path}")
        same = read.stdout.strip() == token
        error = last_line(read.stderr) if read.stderr.strip() else "reads another file"
        return CheckResult(_NAME, host.name, same, "reads what the head wrote" if same else error)

    checks += context.check_each(others, check_read)
    context.run(head, f"rm -f {path}")
    return checks
