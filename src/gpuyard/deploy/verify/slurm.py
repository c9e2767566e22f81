"""Check Slurm: a job on all machines sees every GPU of the cluster, and accounting works."""

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, VerificationContext
from gpuyard.hardware.clusters import resolve_machine


def check_slurm(context: VerificationContext) -> list[CheckResult]:
    hosts = context.hosts_with_role("slurm")
    head = context.head
    if head is None or head not in hosts:
        return []
    _, machine = resolve_machine(context.loaded.cluster)
    nodes, gpus = len(hosts), machine.gpus
    command = (
        f"timeout 45 srun --nodes={nodes} --ntasks-per-node=1 --gres=gpu:{gpus} "
        "printenv CUDA_VISIBLE_DEVICES"
    )
    done = context.run(head, command)
    expected = [",".join(map(str, range(gpus)))] * nodes
    visible = done.stdout.split()
    ok = done.returncode == 0 and visible == expected
    if ok:
        detail = f"{nodes} × {gpus} GPUs"
    elif done.stderr.strip():
        detail = last_line(done.stderr)
    else:
        detail = f"saw {' and '.join(visible)}"
    return [CheckResult("a job on all nodes", "all", ok, detail), _check_accounting(context, head)]


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
