"""`gpuyard simulate`: run a trace of jobs under other policies or on other machines."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import PolicyName
from gpuyard.cli.completion import complete_list
from gpuyard.cli.output import JsonOption, PageOption, progress_bar, show


class TraceFormat(StrEnum):
    """The formats of a trace."""

    GPUYARD = "gpuyard"
    POLLUX = "pollux"
    PHILLY = "philly"
    SACCT = "sacct"
    LEASES = "leases"


class BatchChoice(StrEnum):
    """The chooser of a Pollux job's batch: its user, or the policy."""

    USER = "user"
    ADAPTIVE = "adaptive"


def simulate(
    trace: Annotated[
        Path | None, typer.Argument(metavar="TRACE", help="CSV file with one line per job.")
    ] = None,
    *,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,…",
            autocompletion=complete_list(PolicyName),
            help="Policies to compare, like min-time,fifo, or all; with --what-if, the policy in use "
            "(default: fifo,min-time; with --what-if: fifo).",
        ),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGE",
            help="Change to simulate too: 'add 8 gpus', 'remove 1 machine', "
            "'network 25 Gbit/s', policy=min-time, or several with commas. Repeat to compare.",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            metavar="WORKLOAD",
            help="Workload of jobs for which the trace names none; only with another network.",
        ),
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            metavar="CLUSTER",
            help="Cluster file, or machines × GPUs, like 16x4 (default: the trace's own).",
        ),
    ] = None,
    format: Annotated[
        TraceFormat | None, typer.Option(help="Format of the trace (default: by its columns).")
    ] = None,
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="DIRECTORY",
            help="Directory of the applications' measurements, for pollux (default: next to TRACE).",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --format leases: begin, like '30 days' ago or 2026-11-01 (default: all).",
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="With --format leases: end, like '1 day' ago or 2026-12-01 (default: now).",
        ),
    ] = None,
    batch_choice: Annotated[
        BatchChoice, typer.Option(help="Chooser of the batch, for pollux.")
    ] = BatchChoice.USER,
    deadlines: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help="Invented deadlines: multiples of each job's time alone, like 1..3, or one for all jobs, "
            "like '8 h' after the start.",
        ),
    ] = None,
    failures: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Let machines fail: mean time between failures of one GPU, like '50000 h', or published.",
        ),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="With --failures: time between a job's checkpoints (default: 30 min).",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="With --failures: another random draw.")] = 0,
    html: PageOption = None,
    json_output: JsonOption = False,
) -> None:
    """Run a trace of jobs under several policies, and compare completion times, makespan, and GPU utilization.

    With --format leases, the trace is the history of this machine's leases; leave out TRACE.

    Example: gpuyard simulate jobs.csv --on 4x8 --policy min-time,fair-share,fifo

    Example: gpuyard simulate --format leases --what-if "add 2 gpus" --what-if policy=fair-share
    """
    from gpuyard.api.simulate import simulate as run
    from gpuyard.measure.progress import ProgressUpdate

    with progress_bar("simulating") as report:
        result = run(
            trace,
            policy=policy,
            what_if=what_if or (),
            workload=workload,
            on=on,
            format=format,
            traces=traces,
            since=since,
            until=until,
            batch_choice=batch_choice,
            deadlines=deadlines,
            failures=failures,
            checkpoint_every=checkpoint_every,
            seed=seed,
            on_progress=lambda name, done, total: report(ProgressUpdate(name, done, total)),
        )
    show(result.answer, json_output=json_output, html=html)
