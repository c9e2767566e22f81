"""Check monitoring: Prometheus scrapes every machine that it should."""

import json
import time
from typing import Any

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.verify.check import CheckResult, VerificationContext

_NAME = "monitoring"
_WAIT_SECONDS = 45.0  # three scrape intervals
_QUERY = (
    "python3 -c 'import sys, urllib.request as r; "
    'sys.stdout.write(r.urlopen("http://127.0.0.1:9090/api/v1/targets?state=active", timeout=10).read().decode())\''
)


def check_monitoring(context: VerificationContext) -> list[CheckResult]:
    head = context.head
    hosts = context.hosts_with_role("monitoring")
    if head is None or head not in hosts:
        return []
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        done = context.run(head, _QUERY)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            if time.monotonic() > deadline:
                return [CheckResult(_NAME, head.name, False, last_line(done.stderr))]
        else:
            checks = evaluate_targets(document, [host.name for host in hosts])
            if all(check.ok for check in checks) or time.monotonic() > deadline:
                return checks
        time.sleep(1)


def evaluate_targets(document: dict[str, Any], machines: list[str]) -> list[CheckResult]:
    """Return one check per machine, from the response of Prometheus about its targets."""
    checks = []
    for name in machines:
        targets = [
            target
            for target in document["data"]["activeTargets"]
            if target["labels"].get("machine") == name
        ]
        down = [target for target in targets if target["health"] != "up"]
        jobs = ", ".join(sorted(target["labels"]["job"] for target in targets))
        detail = f"Prometheus scrapes it ({jobs})" if targets else "Prometheus does not scrape it"
        if down:
            detail = f"{down[0]['labels']['job']}: {down[0]['lastError'] or down[0]['health']}"
        checks.append(CheckResult(_NAME, name, bool(targets) and not down, detail))
    return checks
