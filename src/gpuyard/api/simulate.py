"""Run a trace of jobs under other policies or on other machines."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.api.plotting import Plot
from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import UserMistake
from gpuyard.jobs.simulate.loop import simulate as run
from gpuyard.jobs.simulate.what_if import AS_IT_IS, SimulationCase, parse_change
from gpuyard.report.answers.jobs.simulation import simulation_answer
from gpuyard.report.answers.jobs.what_if import what_if_answer

if TYPE_CHECKING:
    from gpuyard.jobs.simulate.failures import FailureModel
    from gpuyard.jobs.simulate.trace import Trace
    from gpuyard.jobs.simulate.traces import BatchChoice
    from gpuyard.jobs.simulate.what_if import Speedup, SpeedupLookup
    from gpuyard.policies import Policy, Pool
    from gpuyard.specs import Cluster

_RANGE = re.compile(r"(\d{1,4}(?:\.\d{1,4})?)\.\.(\d{1,4}(?:\.\d{1,4})?)")
_MACHINES = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,2})")


def simulate(
    trace: str | Path | None = None,
    *,
    policy: str | None = None,
    what_if: Sequence[str] = (),
    workload: str | None = None,
    on: "str | Cluster | None" = None,
    format: str | None = None,
    traces: str | Path | None = None,
    since: str | None = None,
    until: str | None = None,
    batch_choice: str = "user",
    deadlines: str | None = None,
    failures: str | float | None = None,
    checkpoint_every: str | float | None = None,
    seed: int = 0,
    on_progress: Callable[[str, int, int], None] | None = None,
) -> Result[Row]:
    """Run a trace of jobs (a CSV file) under policies, and compare completion times, makespan, and GPU utilization.

    `on` is a cluster, or machines × GPUs like "16x4". `on_progress` gets the name of a case, and done and all jobs. The
    other parameters are the options of `gpuyard simulate`.
    """
    changes = [parse_change(text) for text in what_if]
    policies = _parse_policies(policy or ("fifo" if changes else "fifo,min-time"))
    if changes and len(policies) > 1:
        raise UserMistake(
            "with --what-if, --policy must be the one policy in use; compare others with --what-if policy=NAME"
        )
    if workload is not None and all(change.network is None for change in changes):
        raise UserMistake("--workload is only for --what-if 'network RATE'")
    machines = _parse_cluster(on) if isinstance(on, str) else on
    if format == "leases":
        if trace is not None:
            raise UserMistake("--format leases reads the history of this machine; leave out TRACE")
        jobs = _read_leases(since, until)
    elif since or until:
        raise UserMistake("--since and --until are for the history of leases: add --format leases")
    else:
        jobs = _read_jobs(
            None if trace is None else Path(trace),
            format,
            None if traces is None else Path(traces),
            batch_choice,
            machines,
        )
    pool = _choose_pool(machines, jobs)
    if deadlines is not None:
        jobs = _add_deadlines(jobs, deadlines, pool)
    cases = [
        SimulationCase(AS_IT_IS if changes else policy.name, jobs, pool, policy)
        for policy in policies
    ]
    cases += [change.apply(cases[0], _create_lookup(machines, workload)) for change in changes]

    def report_case(name: str) -> Callable[[int, int], None]:
        return lambda done, total: on_progress(name, done, total) if on_progress else None

    if failures is None and checkpoint_every is not None:
        raise UserMistake("--checkpoint-every only affects failures: add --failures=published")
    outcomes = [
        run(
            case.trace,
            case.policy,
            case.pool,
            report_case(case.name),
            _create_failures(failures, checkpoint_every, seed, machines),
        )
        for case in cases
    ]
    answer = simulation_answer(outcomes)
    if changes:
        names = [case.name for case in cases]
        assumed = f"Jobs for which the trace names no workload are assumed to train {workload}."
        answer = what_if_answer(
            list(zip(names, outcomes, strict=True)), assumed if workload else ""
        )
    rows = answer.document["what_if" if changes else "policies"]
    return Result(answer, wrap(rows), plot=lambda: _create_plot(answer.title, rows))


def _create_failures(
    failures: str | float | None,
    checkpoint_every: str | float | None,
    seed: int,
    machines: "Cluster | Pool | None",
) -> "FailureModel | None":
    """Parse the mean time between failures of one GPU: hours, a duration, or `published`."""
    from gpuyard.economics.interruption_rates import find_failures
    from gpuyard.hardware.clusters import resolve_machine
    from gpuyard.jobs.simulate.failures import CHECKPOINT_EVERY_SECONDS, FailureModel
    from gpuyard.specs import Cluster
    from gpuyard.units import parse_seconds

    if failures is None:
        return None
    if failures == "published":
        gpu = resolve_machine(machines)[0] if isinstance(machines, Cluster) else None
        hours = find_failures(gpu).hours
    elif isinstance(failures, str):
        hours = parse_seconds(failures, "50000 h") / 3600
    else:
        hours = float(failures)
    if not hours > 0:
        raise UserMistake(f"--failures must be above zero, got {failures!r}")
    every = CHECKPOINT_EVERY_SECONDS
    if checkpoint_every is not None:
        every = float(parse_seconds(checkpoint_every, "30 min"))
    if every <= 0:
        raise UserMistake("--checkpoint-every must be above zero")
    return FailureModel(hours, seed, every)


def _create_plot(title: str, rows: "Sequence[Mapping[str, Any]]") -> Plot:
    bars = [
        (str(row.get("case") or row["policy"]), row["mean_completion_seconds"] / 3600)
        for row in rows
    ]
    return Plot(title or "Simulation", "mean completion time in hours", "", bars=bars)


def _create_lookup(machines: "Cluster | Pool | None", default: str | None) -> "SpeedupLookup":
    """Return a function that predicts a network's speedup; jobs without a workload use the default."""

    @cache
    def find_speedup(network: str, workload: str) -> "Speedup":
        from gpuyard.catalog.specfiles import read_workload
        from gpuyard.jobs.simulate.what_if import compare_networks, parse_network
        from gpuyard.specs import Cluster
        from gpuyard.workloads import profile_model

        name = workload or default
        if name is None or not isinstance(machines, Cluster):
            raise UserMistake(
                "another network needs a prediction: name the machines with their network, like "
                "--on 4x8xa100-sxm4-80gb@10G, and the workload, like --workload resnet50"
            )
        spec = read_workload(name)
        other = parse_network(network, machines.network)
        return compare_networks(spec, profile_model(spec), machines, other)

    return find_speedup


def _parse_policies(text: str) -> "list[Policy]":
    from gpuyard.policies import POLICIES, get_policy

    if text.strip() == "all":
        return list(POLICIES.values())
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserMistake(f"--policy: expected names like min-time,fifo, got {text!r}")
    return [get_policy(name) for name in names]


def _read_jobs(
    file: Path | None,
    format: str | None,
    traces: Path | None,
    batch: str,
    machines: "Cluster | Pool | None",
) -> "Trace":
    from gpuyard.jobs.simulate.traces import read_trace
    from gpuyard.specs import Cluster

    if file is None:
        raise UserMistake(
            "TRACE is missing: name a CSV file with one line per job, or use --format leases"
        )
    cluster = machines if isinstance(machines, Cluster) else None
    return read_trace(file, format, traces, _parse_batch_choice(batch), cluster)


def _read_leases(since: str | None, until: str | None) -> "Trace":
    from gpuyard.api.share import parse_period
    from gpuyard.jobs.simulate.traces.history import trace_from_leases
    from gpuyard.share.client import open_reader
    from gpuyard.share.clock import Clock

    clock = Clock()
    period = parse_period(since, until, clock.wall())
    client = open_reader()
    leases = client.history(max(0.0, period.begin))
    held = [lease for lease in leases if period.includes(lease, clock)]
    return trace_from_leases(held, len(client.config.gpus))


def _add_deadlines(trace: "Trace", text: str, pool: "Pool") -> "Trace":
    """Parse a range of multiples of each job's time alone, or one time for all."""
    from gpuyard.units import parse_seconds

    if ".." not in text:
        return trace.set_deadline(parse_seconds(text))
    match = _RANGE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= float(match[2]):
        raise UserMistake(f"--deadlines: expected a range like 1..3, got {text!r}")
    return trace.add_deadlines(float(match[1]), float(match[2]), pool)


def _parse_batch_choice(text: str) -> "BatchChoice":
    from typing import get_args

    from gpuyard.errors import UnknownName
    from gpuyard.jobs.simulate.traces import BatchChoice

    for name in get_args(BatchChoice):
        if name == text:
            return name  # type: ignore[no-any-return]
    raise UnknownName("batch choice", text, get_args(BatchChoice))


def _parse_cluster(text: str | None) -> "Cluster | Pool | None":
    """Parse a described cluster, or only numbers of machines and GPUs."""
    from gpuyard.hardware.clusters import read_cluster
    from gpuyard.policies import Pool

    if text is None:
        return None
    if counts := _MACHINES.fullmatch(text):
        return Pool.uniform(int(counts[1]), int(counts[2]))
    return read_cluster(text)


def _choose_pool(machines: "Cluster | Pool | None", trace: "Trace") -> "Pool":
    from gpuyard.hardware.clusters import resolve_machine
    from gpuyard.policies import Pool

    if machines is None:
        if trace.pool is None:
            raise UserMistake("--on is missing: --on 16x4 means 16 machines with 4 GPUs each")
        return trace.pool
    if isinstance(machines, Pool):
        return machines
    gpus = resolve_machine(machines)[1].gpus
    return Pool.uniform(machines.nodes, gpus, machines.nodes_per_rack)
