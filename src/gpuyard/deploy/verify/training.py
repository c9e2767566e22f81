"""Check training: gpuyard starts everywhere, two machines train together, and the network is as fast as predicted."""

from collections.abc import Sequence

from gpuyard.deploy.access.remote import last_line
from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import (
    TIMEOUT_SECONDS,
    CheckResult,
    VerificationContext,
    run_command,
)
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.units import format_bit_rate

_EXCHANGED_BYTES = 8_000_000
_MODEL = "spoken-digits-linear"
_TRAIN_SECONDS = 2.0


def check_training(context: VerificationContext) -> list[CheckResult]:
    hosts = context.hosts_with_role("training")
    checks = context.check_each(hosts, lambda host: _check_environment(context, host))
    if len(hosts) > 1 and all(check.ok for check in checks):
        checks.append(_check_all_reduce(context, hosts))
        checks.append(_check_two_nodes(context, hosts[:2]))
    return checks


def _check_environment(context: VerificationContext, host: Host) -> CheckResult:
    command = context.place([host]).command(
        0, [*module_argv("gpuyard"), "--version"], import_path()
    )
    done = run_command(command.argv)
    detail = done.stdout.strip() or last_line(done.stderr)
    return CheckResult("training environment", host.name, done.returncode == 0, detail)


def _check_all_reduce(context: VerificationContext, hosts: Sequence[Host]) -> CheckResult:
    """Compare an all-reduce between all machines with the predicted rate."""
    from gpuyard.measure.collectives.plan import plan_collectives
    from gpuyard.measure.collectives.run import run_collectives

    name = "all-reduce between all"
    network = context.loaded.cluster.network
    try:
        plan = plan_collectives(
            context.place(hosts),
            len(hosts),
            ["all_reduce"],
            [_EXCHANGED_BYTES],
            link_bytes_per_second=None if network is None else network.rate,
            repeats=3,
        )
        bench = run_collectives(plan, silence_seconds=TIMEOUT_SECONDS)
    except GpuyardError as error:
        return CheckResult(name, "all", False, str(error))
    context.store.add(bench)
    (result,) = bench.results
    detail = f"{format_bit_rate(result.bus_bytes_per_second)}, {result.ratio:.0%} of the prediction"
    causes = [cause.why for finding in bench.findings for cause in finding.causes]
    ok = result.correct and result.verdict == "normal"
    return CheckResult(name, "all", ok, "; ".join([detail, *causes[:1]]))


def _check_two_nodes(context: VerificationContext, hosts: Sequence[Host]) -> CheckResult:
    """Train briefly on two machines, and store the measurement like every other."""
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure import plan_sweep, run_sweep
    from gpuyard.measure.validity import NAN_LOSS

    name = "training on two nodes"
    pair = ", ".join(host.name for host in hosts)
    spec = read_workload(_MODEL)
    dataset = spec.dataset and spec.dataset.model_copy(update={"source": "synthetic"})
    try:
        sweep = plan_sweep(
            spec.model_copy(update={"dataset": dataset}),
            [len(hosts)],
            [spec.batch_per_gpu],
            seconds_per_point=_TRAIN_SECONDS,
            place=context.place(hosts),
        )
        (run,) = run_sweep(sweep, context.store, fresh=True, silence_seconds=TIMEOUT_SECONDS)
    except GpuyardError as error:
        return CheckResult(name, pair, False, str(error))
    detail = f"{_MODEL}: {run.samples_per_second:,.0f} samples/s"
    return CheckResult(name, pair, run.doubt != NAN_LOSS, detail)
