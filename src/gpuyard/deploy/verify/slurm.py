"""Check Slurm: jobs see every GPU, a user's job works in the shared storage, and accounting works."""

import json
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import TIMED_OUT, CheckResult, VerificationContext
from gpuyard.hardware.clusters import resolve_machine

_ALL_NODES, _USER_JOB = "a job on all nodes", "a user's job"
_REPAIR = "repair it with: gpuyard deploy up FILE"
_UNPRIVILEGED = "nobody"  # a user of every Debian and Ubuntu
_FIND_CAUSE = """
for program in munged slurmd; do pgrep -x $program > /dev/null || echo "$program does not run"; done
{mounted}
id {user} > /dev/null 2>&1 || echo "the account {user} is missing"
"""
_MOUNTED = 'findmnt --mountpoint {shared} > /dev/null || echo "{shared} is not mounted"'
_DOWN_STATES = ("down", "drain", "fail")


def check_slurm(context: VerificationContext) -> list[CheckResult]:
    hosts = context.hosts_with_role("slurm")
    head = context.head
    if head is None or head not in hosts:
        return []
    checks = [_check_all_nodes(context, head, hosts)]
    if all("shared-storage" in context.roles(host) for host in hosts):
        checks.append(
            _check_user_job(context, head, hosts)
            if checks[0].ok
            else CheckResult(_USER_JOB, "all", None, f"tried only after {_ALL_NODES}")
        )
    return [*checks, _check_accounting(context, head)]


def _check_all_nodes(
    context: VerificationContext, head: Host, hosts: Sequence[Host]
) -> CheckResult:
    _, machine = resolve_machine(context.loaded.cluster)
    nodes, gpus = len(hosts), machine.gpus
    command = (
        f"timeout 45 srun --nodes={nodes} --ntasks-per-node=1 --gres=gpu:{gpus} "
        "printenv CUDA_VISIBLE_DEVICES"
    )
    done = context.run(head, command)
    expected = [",".join(map(str, range(gpus)))] * nodes
    visible = done.stdout.split()
    if done.returncode == 0 and visible == expected:
        return CheckResult(_ALL_NODES, "all", True, f"{nodes} × {gpus} GPUs")
    error = last_line(done.stderr) if done.stderr.strip() else f"saw {' and '.join(visible)}"
    return _explain(context, _ALL_NODES, head, error, waits=done.returncode == TIMED_OUT)


def _check_user_job(context: VerificationContext, head: Host, hosts: Sequence[Host]) -> CheckResult:
    """Submit a job in the shared storage as a user, and look at the files that it leaves there."""
    nodes = min(2, len(hosts))
    user = _choose_user(context, head)
    uses_gpuyard = all("training" in context.roles(host) for host in hosts)
    script = resources.files(__package__).joinpath("user_job.py").read_text(encoding="utf-8")
    arguments = (context.loaded.deployment.shared, str(nodes))
    command = shlex.join(
        ("python3", "-I", "-c", script, *arguments, "gpuyard" if uses_gpuyard else "sbatch")
    )
    if user == head.user:
        done = context.run(head, command)
    else:
        done = context.run_as_root(head, f"runuser -u {user} -- {command}")
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return _explain(context, _USER_JOB, head, last_line(done.stderr))
    if not answer["installed"]:
        detail = f"{user} cannot run gpuyard: everyone must be able to read its Python environment, so it cannot be below /root"
        return CheckResult(
            _USER_JOB, "all", False if context.loaded.deployment.users else None, detail
        )
    if answer["error"]:
        return _explain(context, _USER_JOB, head, answer["error"], waits=answer["waits"])
    ok, detail = judge_user_job(answer, user, nodes, context.loaded.deployment.shared)
    return CheckResult(_USER_JOB, "all", ok, detail)


def judge_user_job(
    answer: Mapping[str, Any], user: str, nodes: int, shared: str
) -> tuple[bool, str]:
    """Judge what a finished job left: a file of each node that belongs to the user, and every node in its log."""
    owners, log = answer["owners"], set(answer["log"])
    wrong = [f"{node} (to {owner})" for node, owner in sorted(owners.items()) if owner != user]
    if wrong:
        return False, (
            f"files that {user} creates in {shared} on {', '.join(wrong)} belong to somebody else; the file server must "
            f"keep owners, and {user} must have the same id on all machines; {_REPAIR}"
        )
    missing = sorted(log - set(owners))
    if missing:
        return False, (
            f"the file that the job wrote in {shared} on {', '.join(missing)} is not there on the head; {_REPAIR}"
        )
    if len(owners) != nodes or log != set(owners):
        ran = ", ".join(sorted(owners)) or "no node"
        return False, f"the job should run on {nodes} nodes, but its log and files name {ran}"
    return True, f"{user} ran it on {' and '.join(sorted(owners))}"


def _choose_user(context: VerificationContext, head: Host) -> str:
    """Return the first person of the deployment file, or the login user unless that is root."""
    people = [user.name for user in context.loaded.deployment.users]
    if people:
        return people[0]
    return _UNPRIVILEGED if head.user == "root" else head.user


def _explain(
    context: VerificationContext, name: str, head: Host, error: str, *, waits: bool = False
) -> CheckResult:
    """Name the machine that makes a job fail, and the repair. If other jobs hold the nodes, the check was not tried."""
    shared = context.loaded.deployment.shared
    hosts = context.hosts_with_role("slurm")

    def find_cause(host: Host) -> str:
        stored = "shared-storage" in context.roles(host)
        mounted = _MOUNTED.format(shared=shared) if stored else ""
        command = _FIND_CAUSE.format(mounted=mounted, user=_choose_user(context, head))
        causes = context.run(host, command).stdout.splitlines()
        return f"{host.name}: {' and '.join(causes)}; {_REPAIR}" if causes else ""

    causes = [cause for cause in context.check_each(hosts, find_cause) if cause]
    if causes:
        return CheckResult(name, "all", False, causes[0])
    states = context.run(head, "timeout 20 sinfo --noheader --Node --format='%N|%T|%E'").stdout
    for node, state, reason in (line.split("|", 2) for line in states.splitlines()):
        if state.startswith(_DOWN_STATES) or state.endswith("*"):
            resume = f"scontrol update nodename={node} state=resume"
            detail = f"Slurm reports {node} as {state} ({reason}); when it is repaired: {resume}"
            return CheckResult(name, "all", False, detail)
    if waits:
        detail = "other jobs hold the nodes; verify it again when they are free"
        return CheckResult(name, "all", None, detail)
    return CheckResult(name, "all", False, error)


def _check_accounting(context: VerificationContext, head: Host) -> CheckResult:
    """Check that slurmdbd answers and that this cluster is registered."""
    name = context.loaded.deployment.name
    done = context.run(
        head,
        "timeout 20 sacctmgr --noheader --parsable2 list cluster format=cluster,controlhost",
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith(f"{name}|")]
    registered = bool(rows) and not rows[0].endswith("|")
    detail = (
        f"slurmdbd keeps accounts of {name}"
        if registered
        else "slurmctld has not registered with slurmdbd"
    )
    if done.returncode != 0:
        detail = last_line(done.stderr)
    return CheckResult("job accounts", head.name, registered, detail)
