"""Of monitoring: Prometheus sees everything that it is told to ask."""

import json
import time
from typing import Any

from gpuyard.deploy.verify.check import CheckResult, Deployed, last_words

_NAME = "monitoring"
_WAIT_SECONDS = 45.0  # three rounds of asking
_ASK = (
    "python3 -c 'import sys, urllib.request as r; "
    'sys.stdout.write(r.urlopen("http://127.0.0.1:9090/api/v1/targets?state=active", timeout=10).read().decode())\''
)


def watched(deployed: Deployed) -> list[CheckResult]:
    head = deployed.head
    hosts = deployed.having("monitoring")
    if head is None or head not in hosts:
        return []
    deadline = time.monotonic() + _WAIT_SECONDS
    while True:
        done = deployed.run(head, _ASK)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            if time.monotonic() > deadline:
                return [CheckResult(_NAME, head.name, False, last_words(done.stderr))]
        else:
            checks = seen(document, [host.name for host in hosts])
            if all(check.ok for check in checks) or time.monotonic() > deadline:
                return checks
        time.sleep(1)


def seen(document: dict[str, Any], machines: list[str]) -> list[CheckResult]:
    """What Prometheus says of each machine."""
    checks = []
    for name in machines:
        targets = [
            one for one in document["data"]["activeTargets"] if one["labels"].get("machine") == name
        ]
        down = [one for one in targets if one["health"] != "up"]
        jobs = ", ".join(sorted(one["labels"]["job"] for one in targets))
        words = f"Prometheus sees it ({jobs})" if targets else "Prometheus does not ask it"
        if down:
            words = f"{down[0]['labels']['job']}: {down[0]['lastError'] or down[0]['health']}"
        checks.append(CheckResult(_NAME, name, bool(targets) and not down, words))
    return checks
