"""Of Slurm: a job on all machines at once sees every GPU that the cluster has."""

from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import CheckResult, Deployed, last_words
from gpuyard.hardware.clusters import machine_of


def a_job(deployed: Deployed) -> list[CheckResult]:
    hosts = deployed.having("slurm")
    head = deployed.head
    if head is None or head not in hosts:
        return []
    _, machine = machine_of(deployed.opened.cluster)
    nodes, gpus = len(hosts), machine.gpus
    line = (
        f"timeout 45 srun --nodes={nodes} --ntasks-per-node=1 --gres=gpu:{gpus} "
        "printenv CUDA_VISIBLE_DEVICES"
    )
    done = deployed.run(head, line)
    wanted = [",".join(map(str, range(gpus)))] * nodes
    seen = done.stdout.split()
    ok = done.returncode == 0 and seen == wanted
    said = last_words(done.stderr) if done.stderr.strip() else f"saw {' and '.join(seen)}"
    job = CheckResult("a job on all nodes", "all", ok, f"{nodes} × {gpus} GPUs" if ok else said)
    return [job, _accounts(deployed, head)]


def _accounts(deployed: Deployed, head: Host) -> CheckResult:
    """slurmdbd answers, and knows this cluster."""
    name = deployed.opened.deployment.name
    done = deployed.run(
        head,
        "timeout 20 sacctmgr --noheader --parsable2 list cluster format=cluster,controlhost",
    )
    known = [line for line in done.stdout.splitlines() if line.startswith(f"{name}|")]
    registered = bool(known) and not known[0].endswith("|")
    words = (
        f"slurmdbd keeps those of {name}" if registered else "slurmdbd has not heard of slurmctld"
    )
    if done.returncode != 0:
        words = last_words(done.stderr)
    return CheckResult("job accounts", head.name, registered, words)
