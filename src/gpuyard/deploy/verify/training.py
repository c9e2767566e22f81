"""Of training: gpuyard starts everywhere, two machines train, and the network is as fast as the model expects."""

from collections.abc import Sequence

from gpuyard.deploy.state import Host
from gpuyard.deploy.verify.check import SECONDS, CheckResult, Deployed, answer_of, last_words
from gpuyard.errors import GpuyardError
from gpuyard.interpreter import import_path, module_argv
from gpuyard.units import format_bit_rate

_EXCHANGED_BYTES = 8_000_000
_MODEL = "spoken-digits-linear"
_TRAIN_SECONDS = 2.0


def able_to_train(deployed: Deployed) -> list[CheckResult]:
    hosts = deployed.having("training")
    checks = deployed.each(hosts, lambda host: _starts(deployed, host))
    if len(hosts) > 1 and all(check.ok for check in checks):
        checks.append(_exchange(deployed, hosts))
        checks.append(_train(deployed, hosts[:2]))
    return checks


def _starts(deployed: Deployed, host: Host) -> CheckResult:
    started = deployed.place([host]).command(
        0, [*module_argv("gpuyard"), "--version"], import_path()
    )
    done = answer_of(started.argv)
    words = done.stdout.strip() or last_words(done.stderr)
    return CheckResult("training environment", host.name, done.returncode == 0, words)


def _exchange(deployed: Deployed, hosts: Sequence[Host]) -> CheckResult:
    """All-reduce between all machines, against what the model expects of the network."""
    from gpuyard.measure.collectives.plan import plan_collectives
    from gpuyard.measure.collectives.run import run_collectives

    name = "all-reduce between all"
    network = deployed.opened.cluster.network
    try:
        plan = plan_collectives(
            deployed.place(hosts),
            len(hosts),
            ["all_reduce"],
            [_EXCHANGED_BYTES],
            link_bytes_per_second=None if network is None else network.rate,
            repeats=3,
        )
        bench = run_collectives(plan, silence_seconds=SECONDS)
    except GpuyardError as error:
        return CheckResult(name, "all", False, str(error))
    deployed.store.add(bench)
    (result,) = bench.results
    words = f"{format_bit_rate(result.bus_bytes_per_second)}, {result.ratio:.0%} of what the model expects"
    causes = [cause.why for finding in bench.findings for cause in finding.causes]
    ok = result.correct and result.verdict == "normal"
    return CheckResult(name, "all", ok, "; ".join([words, *causes[:1]]))


def _train(deployed: Deployed, hosts: Sequence[Host]) -> CheckResult:
    """A short run on two machines, stored like every other."""
    from gpuyard.catalog.specfiles import read_workload
    from gpuyard.measure import plan_sweep, run_sweep
    from gpuyard.measure.credible import NO_LOSS

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
            place=deployed.place(hosts),
        )
        (run,) = run_sweep(sweep, deployed.store, fresh=True, silence_seconds=SECONDS)
    except GpuyardError as error:
        return CheckResult(name, pair, False, str(error))
    words = f"{_MODEL}: {run.samples_per_second:,.0f} samples/s"
    return CheckResult(name, pair, run.doubt != NO_LOSS, words)
