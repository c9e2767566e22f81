"""`gpuyard simulate`: what a trace of jobs would meet under other policies or on other machines."""

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.output import JsonOption, PageOption, progress_bar, show
from gpuyard.errors import UserMistake

if TYPE_CHECKING:
    from gpuyard.jobs.policies import Policy, Pool
    from gpuyard.jobs.simulate.trace import Trace
    from gpuyard.jobs.simulate.traces import BatchChoice
    from gpuyard.jobs.simulate.what_if import Faster, Ratio
    from gpuyard.specs import Cluster

_RANGE = re.compile(r"(\d{1,4}(?:\.\d{1,4})?)\.\.(\d{1,4}(?:\.\d{1,4})?)")
_MACHINES = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,2})")


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="A CSV with one line per job.")
    ] = None,
    *,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Which policies, like min-time,fifo, or all; with --what-if the one that was in "
            "use (default: fifo,min-time; with --what-if: fifo).",
        ),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help="Also simulate a change: 'add 8 gpus', 'remove 1 machine', "
            "'network 25 Gbit/s', policy=min-time, or several with commas. Repeat to compare.",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="WORKLOAD",
            help="With another network: the workload of jobs for which the trace names none.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER",
            help="A *.cluster.yaml, or machines × GPUs, like 16x4 (default: the trace's own).",
        ),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="gpuyard, pollux, philly, sacct or leases (default: by its columns).",
        ),
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The applications' measurements, for pollux (default: next to TRACE).",
        ),
    ] = None,
    batch: Annotated[
        str,
        typer.Option(metavar="WHO", help="For pollux: who chooses the batch, user or adaptive."),
    ] = "user",
    deadlines: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Invent deadlines: a multiple of each job's time when it runs alone, like 1..3, or one for "
            "all, like '8 h' after the start.",
        ),
    ] = None,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Run a trace of jobs through policies, and compare completion times, makespan and use of GPUs.

    With --format leases it is the history of this machine's leases, and TRACE is left out.

    Example: gpuyard simulate jobs.csv --cluster 4x8 --policy min-time,fair-share,fifo

    Example: gpuyard simulate --format leases --what-if "add 2 gpus" --what-if policy=fair-share
    """
    from gpuyard.jobs.simulate.loop import simulate as run
    from gpuyard.jobs.simulate.what_if import AS_IT_IS, SimulationCase, parse_change
    from gpuyard.measure.progress import ProgressUpdate
    from gpuyard.report.answers.jobs.simulation import simulation_answer
    from gpuyard.report.answers.jobs.what_if import what_if_answer

    changes = [parse_change(text) for text in what_if or []]
    policies = _policies(policy or ("fifo" if changes else "fifo,min-time"))
    if changes and len(policies) > 1:
        raise UserMistake("with --what-if, --policy is the one in use; add --what-if policy=NAME")
    if workload is not None and all(change.network is None for change in changes):
        raise UserMistake("--workload is for --what-if 'network RATE'")
    machines = _machines(cluster)
    read = _trace(trace, format, traces, batch, machines)
    pool = _pool(machines, read)
    if deadlines is not None:
        read = _due(read, deadlines, pool)
    cases = [SimulationCase(AS_IT_IS if changes else one.name, read, pool, one) for one in policies]
    cases += [change.case(cases[0], _faster(machines, workload)) for change in changes]
    with progress_bar("simulating") as tell:

        def told(name: str) -> Callable[[int, int], None]:
            return lambda done, of: tell(ProgressUpdate(name, done, of))

        outcomes = [run(case.trace, case.policy, case.pool, told(case.name)) for case in cases]
    answer = simulation_answer(outcomes)
    if changes:
        names = [case.name for case in cases]
        assumed = f"Where the trace doesn't say it, jobs are taken to train {workload}."
        answer = what_if_answer(
            list(zip(names, outcomes, strict=True)), assumed if workload else ""
        )
    show(answer, json_output=json_output, html=html)


def _faster(machines: "Cluster | Pool | None", otherwise: str | None) -> "Faster":
    """What a network makes of jobs, by the predictor; `otherwise` stands for what a trace doesn't say."""

    @cache
    def ratio(network: str, workload: str) -> "Ratio":
        from gpuyard.catalog.specfiles import read_workload
        from gpuyard.jobs.simulate.what_if import network_of, network_ratio
        from gpuyard.specs import Cluster
        from gpuyard.workloads import profile_of

        name = workload or otherwise
        if name is None or not isinstance(machines, Cluster):
            raise UserMistake(
                "another network needs the predictor: name the machines with their network, like "
                "--cluster 4x8xa100-sxm4-80gb@10G, and what is trained, like --workload resnet50"
            )
        spec = read_workload(name)
        other = network_of(network, machines.network)
        return network_ratio(spec, profile_of(spec), machines, other)

    return ratio


def _policies(text: str) -> "list[Policy]":
    from gpuyard.jobs.policies import POLICIES, policy_of

    if text.strip() == "all":
        return list(POLICIES.values())
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise UserMistake(f"--policy: expected names like min-time,fifo, got {text!r}")
    return [policy_of(name) for name in names]


def _trace(
    file: Path | None,
    format: str | None,
    traces: Path | None,
    batch: str,
    machines: "Cluster | Pool | None",
) -> "Trace":
    from gpuyard.jobs.simulate.traces import read_trace
    from gpuyard.specs import Cluster

    if format == "leases":
        if file is not None:
            raise UserMistake("--format leases is the history of this machine: leave out TRACE")
        return _leases()
    if file is None:
        raise UserMistake("name a TRACE: a CSV with a line a job, or take --format leases")
    cluster = machines if isinstance(machines, Cluster) else None
    return read_trace(file, format, traces, _batch(batch), cluster)


def _leases() -> "Trace":
    from gpuyard.jobs.simulate.traces.history import lease_trace
    from gpuyard.share.service.desk import open_to_look

    desk = open_to_look()
    desk.state()  # what is dead is closed first
    return lease_trace(desk.history(), len(desk.config.gpus))


def _due(trace: "Trace", text: str, pool: "Pool") -> "Trace":
    """A range of times that jobs take alone, or one moment for all."""
    from gpuyard.units import parse_seconds

    if ".." not in text:
        return trace.due_at(parse_seconds(text))
    match = _RANGE.fullmatch(text.strip())
    if match is None or not 0 < float(match[1]) <= float(match[2]):
        raise UserMistake(f"--deadlines: expected a range like 1..3, got {text!r}")
    return trace.with_deadlines(float(match[1]), float(match[2]), pool)


def _batch(text: str) -> "BatchChoice":
    from typing import get_args

    from gpuyard.errors import UnknownName
    from gpuyard.jobs.simulate.traces import BatchChoice

    for known in get_args(BatchChoice):
        if known == text:
            return known  # type: ignore[no-any-return]
    raise UnknownName("way to choose the batch", text, get_args(BatchChoice))


def _machines(text: str | None) -> "Cluster | Pool | None":
    """A described cluster, or only how many machines with how many GPUs."""
    from gpuyard.hardware.clusters import read_cluster
    from gpuyard.jobs.policies import Pool

    if text is None:
        return None
    if counts := _MACHINES.fullmatch(text):
        return Pool.uniform(int(counts[1]), int(counts[2]))
    return read_cluster(text)


def _pool(machines: "Cluster | Pool | None", trace: "Trace") -> "Pool":
    from gpuyard.hardware.clusters import machine_of
    from gpuyard.jobs.policies import Pool

    if machines is None:
        if trace.pool is None:
            raise UserMistake("name the machines: --cluster 16x4 is 16 machines with 4 GPUs each")
        return trace.pool
    if isinstance(machines, Pool):
        return machines
    gpus = machine_of(machines)[1].gpus
    return Pool.uniform(machines.nodes, gpus, machines.nodes_per_rack)
