"""Check MLflow: every machine logs a metric to the head's server and reads it back."""

import time

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.ports import mlflow_tracking_uri
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, VerificationContext

_NAME = "MLflow"
_START_SECONDS = 45.0  # the server creates its database when it first starts
# Machines need not have MLflow's client, so the script calls the server's API; it deletes the run that it creates.
_SCRIPT = """
import json, sys, urllib.request
def call(path, document):
    data = None if document is None else json.dumps(document).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{sys.argv[1]}/api/2.0/mlflow/{path}", data, headers)
    return json.load(urllib.request.urlopen(request, timeout=10))
run = call("runs/create", {"experiment_id": "0", "run_name": "gpuyard-verify"})["run"]["info"]["run_id"]
call("runs/log-metric", {"run_id": run, "key": "verified", "value": 1.0, "timestamp": 0})
metrics = call(f"runs/get?run_id={run}", None)["run"]["data"]["metrics"]
call("runs/delete", {"run_id": run})
sys.exit(0 if metrics[0]["value"] == 1.0 else "the metric that was read is not the one that was logged")
"""


def check_mlflow(context: VerificationContext) -> list[CheckResult]:
    head = context.head
    if head is None:
        return []
    url = mlflow_tracking_uri(head)
    deadline = time.monotonic() + _START_SECONDS

    def check_logging(host: Host) -> CheckResult:
        while True:
            done = context.run(host, f"python3 - {url}", _SCRIPT)
            ok = done.returncode == 0
            if ok or time.monotonic() > deadline:
                detail = f"logs to {url}" if ok else last_line(done.stderr)
                return CheckResult(_NAME, host.name, ok, detail)
            time.sleep(1)

    return context.check_each(context.hosts, check_logging)
