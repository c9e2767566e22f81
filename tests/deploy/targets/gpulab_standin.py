"""A stand-in for `gpulab-cli` with the options and output of version 3.11, and a directory in place of GPULab.

Each job is a file in GPUYARD_STANDIN, and runs from its second query on. The file `refuse` has the message with which
submissions are rejected, `fails` makes jobs fail, and `stuck` keeps them queued.
"""

import json
import os
import sys
import uuid
from pathlib import Path
from typing import Any

THERE = Path(os.environ["GPUYARD_STANDIN"])
KNOWN: dict[str, Any] = {
    "name": str, "description": str,
    "request": {
        "resources": {
            "gpus": int, "cpus": int, "cpuMemoryGb": int, "gpuMemoryGb": int, "gpuModel": list, "clusterId": int,
            "minCudaVersion": int,
        },
        "docker": {"image": str, "command": (str, list), "environment": dict, "storage": list, "portMappings": list},
        "scheduling": {
            "interactive": bool, "restartable": bool, "minDuration": str, "maxDuration": str, "reservationIds": list,
        },
        "extra": {"sshPubKeys": list, "emailOnQueue": list, "emailOnRun": list, "emailOnEnd": list},
    },
}  # fmt: skip


def fail(message: str) -> None:
    sys.stderr.write(f"Error: {message}\n")
    raise SystemExit(1)


def check(where: str, value_: Any, schema: dict[str, Any]) -> None:
    for name, value in value_.items():
        kind = schema.get(name)
        if kind is None:
            fail(f"Could not parse provided Job: {where}.{name}")
        if isinstance(kind, dict):
            check(f"{where}.{name}", value, kind)
        elif not isinstance(value, kind):  # type: ignore[arg-type]
            fail(f"Could not parse provided Job: {where}.{name} is {value!r}")


def read(identity: str) -> dict[str, Any]:
    path = THERE / f"{identity}.job"
    if not path.exists():
        fail("Not found")
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def write(job: dict[str, Any]) -> None:
    (THERE / f"{job['uuid']}.job").write_text(json.dumps(job))


def submit(project: str, file: str) -> None:
    if (THERE / "refuse").exists():
        fail((THERE / "refuse").read_text())
    definition = json.loads(Path(file).read_text())
    check("job", definition, KNOWN)
    for part in ("resources", "docker"):
        if part not in definition["request"]:
            fail(f"Could not parse provided Job: {part} is missing")
    identity = str(uuid.uuid4())
    write({
        "uuid": identity, **definition, "owner": {"projectUrn": f"urn:publicid:IDN+ilabt.imec.be+project+{project}"},
        "state": {"status": "QUEUED", "resources": None}, "looked": 0,
    })  # fmt: skip
    print(identity)  # noqa: T201


def observe(job: dict[str, Any]) -> dict[str, Any]:
    job["looked"] += 1
    if job["state"]["status"] == "QUEUED" and job["looked"] > 1 and not (THERE / "stuck").exists():
        job["state"]["status"] = "FAILED" if (THERE / "fails").exists() else "RUNNING"
        job["state"]["resources"] = {
            "clusterId": 1, "sshHost": "10.2.46.1", "sshPort": 20000 + int(job["uuid"][:3], 16), "sshUsername": "root",
            "sshProxyHost": "bastion.ilabt.imec.be", "sshProxyPort": 22, "sshProxyUsername": "fffalice",
        }  # fmt: skip
    write(job)
    return {key: value for key, value in job.items() if key != "looked"}


def main(arguments: list[str]) -> None:
    if not Path(os.environ["GPULAB_CERT"]).read_text().startswith("-----BEGIN"):
        fail("cert file not found")
    match arguments:
        case ["submit", "--project", project, file]:
            submit(project, file)
        case ["jobs", "--raw", identity]:
            print(json.dumps(observe(read(identity)), indent=4))  # noqa: T201
        case ["jobs", "--strict-user", "--raw", "--max-count", "200"]:
            jobs = [json.loads(path.read_text()) for path in sorted(THERE.glob("*.job"))]
            print(json.dumps(jobs, indent=4))  # noqa: T201
        case ["cancel", identity]:
            job = read(identity)
            job["state"]["status"] = "CANCELLED"
            write(job)
            print(identity)  # noqa: T201
        case _:
            fail(f"no such command: {arguments}")


if __name__ == "__main__":
    main(sys.argv[1:])
