"""Check training: gpuyard starts everywhere, two machines train together, and the network is as fast as predicted."""

import time
from collections.abc import Callable, Sequence

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
_MAX_WAIT_SECONDS = 60.0
_POLL_SECONDS = 1.0


def check_training(context: VerificationContext) -> list[CheckResult]:
    hosts = context.hosts_with_role("training")
    checks = context.check_each(hosts, lambda host: _check_environment(context, host))
    if len(hosts) > 1 and all(check.ok for check in checks):
        pair = hosts[:2]
        names = ", ".join(host.name for host in pair)
        checks += [
            measure_check("all-reduce between all", "all", lambda: _all_reduce(context, hosts)),
            measure_check("training on two nodes", names, lambda: _train(context, pair)),
        ]
    return checks


def measure_check(name: str, host: str, measure: Callable[[], tuple[bool, str]]) -> CheckResult:
    """Run a check that measures; wait until other measurements on this machine end, because both would be disturbed."""
    from gpuyard.measure.machine_lock import MachineBusy

    deadline = time.monotonic() + _MAX_WAIT_SECONDS
    while True:
        try:
            return CheckResult(name, host, *measure())
        except MachineBusy as error:
            if time.monotonic() > deadline:
                return CheckResult(name, host, None, str(error))
            time.sleep(_POLL_SECONDS)
        except GpuyardError as error:
            return CheckResult(name, host, False, str(error))


def _check_environment(context: VerificationContext, host: Host) -> CheckResult:
    command = context.place([host]).command(
        0, [*module_argv("gpuyard"), "--version"], import_path()
    )
    done = run_command(command.argv)
    detail = done.stdout.strip() or last_line(done.stderr)
    return CheckResult("training environment", host.name, done.returncode == 0, detail)


def _all_reduce(context: VerificationContext, hosts: Sequence[Host]) -> tuple[bool, str]:
    """Compare an all-reduce between all machines with the predicted rate."""
    from gpuyard.measure.collectives.plan import plan_collectives
    from gpuyard.measure.collectives.run import run_collectives
    from gpuyard.measure.machine_lock import hold_measurement_lock

    network = context.loaded.cluster.network
    plan = plan_collectives(
        context.place(hosts),
        len(hosts),
        ["all_reduce"],
        [_EXCHANGED_BYTES],
        link_bytes_per_second=None if network is None else network.rate,
        repeats=3,
    )
    with hold_measurement_lock():
        bench = run_collectives(plan, silence_seconds=TIMEOUT_SECONDS)
    context.store.add(bench)
    (result,) = bench.results
    detail = f"{format_bit_rate(result.bus_bytes_per_second)}, {result.ratio:.0%} of the prediction"
    causes = [cause.why for finding in bench.findings for cause in finding.causes]
    ok = result.correct and result.verdict == "normal"
    return ok, "; ".join([detail, *causes[:1]])


def _train(context: VerificationContext, hosts: Sequence[Host]) -> tuple[bool, str]:
    """Train briefly on two machines, and store the measurement like every other."""
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure.training.plan import plan_sweep
    from gpuyard.measure.training.run import run_sweep
    from gpuyard.measure.validity import NAN_LOSS

    spec = read_workload(_MODEL)
    dataset = spec.dataset and spec.dataset.model_copy(update={"source": "synthetic"})
    sweep = plan_sweep(
        spec.model_copy(update={"dataset": dataset}),
        [len(hosts)],
        [spec.batch_per_gpu],
        seconds_per_point=_TRAIN_SECONDS,
        place=context.place(hosts),
    )
    (run,) = run_sweep(sweep, context.store, fresh=True, silence_seconds=TIMEOUT_SECONDS)
    return run.doubt != NAN_LOSS, f"{_MODEL}: {run.samples_per_second:,.0f} samples/s"
