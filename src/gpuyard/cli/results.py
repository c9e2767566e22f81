"""`gpuyard results`: what was measured on this machine."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.options import JsonOption, console, print_json, print_table
from gpuyard.cli.run_tables import device_of, where_of

if TYPE_CHECKING:
    from gpuyard.measure import ResultsStore

app = typer.Typer(help="Look at what was measured.", no_args_is_help=True)

WorkloadOption = Annotated[str | None, typer.Option(help="Only measurements of this workload.")]


class Format(StrEnum):
    """JSON lines hold everything; CSV is one flat row a measurement."""

    JSON = "json"
    CSV = "csv"


class Kind(StrEnum):
    """What each bench keeps, and what `bench sweep` would not believe."""

    TRAIN = "train"
    LINKS = "links"
    COLLECTIVES = "collectives"
    RELIEF = "relief"
    STORAGE = "storage"
    REJECTED = "rejected"


KindOption = Annotated[
    Kind,
    typer.Option(help="What was measured, or rejected runs."),
]


@app.command("list")
def list_results(
    *,
    kind: KindOption = Kind.TRAIN,
    workload: WorkloadOption = None,
    json_output: JsonOption = False,
) -> None:
    """List the measurements, oldest first.

    Example: gpuyard results list --workload spoken-digits-linear
    """
    from gpuyard.cli.collective_tables import list_collectives
    from gpuyard.cli.link_tables import list_links
    from gpuyard.cli.relief_tables import list_reliefs
    from gpuyard.cli.run_tables import list_rejected, list_runs
    from gpuyard.cli.storage_tables import list_storage

    store = _store()
    if kind in (Kind.LINKS, Kind.COLLECTIVES, Kind.STORAGE):
        _check_no_workload(workload)
    match kind:
        case Kind.LINKS:
            list_links(store, json_output=json_output)
        case Kind.COLLECTIVES:
            list_collectives(store, json_output=json_output)
        case Kind.RELIEF:
            list_reliefs(store.list_reliefs(workload), json_output=json_output)
        case Kind.STORAGE:
            list_storage(store.list_storage(), json_output=json_output)
        case Kind.REJECTED:
            list_rejected(store.list_rejected(workload), json_output=json_output)
        case Kind.TRAIN:
            list_runs(store, workload, json_output=json_output)


@app.command()
def show(
    measurement_id: Annotated[
        str, typer.Argument(metavar="ID", help="The id of a measurement, or how it starts.")
    ],
    *,
    json_output: JsonOption = False,
) -> None:
    """Show one measurement with its provenance.

    Example: gpuyard results show 3f2a
    """
    from gpuyard import units
    from gpuyard.measure import CollectivesBench, LinkBench, Rejection
    from gpuyard.measure.relief import ReliefResult
    from gpuyard.measure.storage import StorageBench

    m = _store().get(measurement_id)
    if json_output:
        print_json(m.model_dump(mode="json"))
        return
    if isinstance(m, LinkBench):
        from gpuyard.cli.link_tables import print_links

        print_links(m)
        return
    if isinstance(m, CollectivesBench):
        from gpuyard.cli.collective_tables import print_collectives

        print_collectives(m)
        return
    if isinstance(m, ReliefResult):
        from gpuyard.cli.relief_tables import print_relief

        print_relief(m)
        return
    if isinstance(m, StorageBench):
        from gpuyard.cli.storage_tables import print_storage

        print_storage(m)
        return
    rejected = ""
    if isinstance(m, Rejection):
        rejected, m = m.reason, m.measurement
    rows = [
        *([["rejected", rejected]] if rejected else []),
        *([["doubt", m.doubt]] if m.doubt else []),
        ["made (UTC)", m.created_at],
        ["strategy", f"{m.strategy} on {device_of(m)}"],
        ["remedy", m.remedy.label],
        ["where", where_of(m)],
        ["workers", str(m.workers)],
        ["batch a worker", str(m.batch_per_worker)],
        ["samples/s", f"{m.samples_per_second:,.1f}"],
        ["95 % interval", f"{m.low:,.1f} – {m.high:,.1f}"],
        ["step", units.format_seconds(m.step.step_seconds)],
        ["  compute", units.format_seconds(m.step.compute_seconds)],
        ["  exposed communication", units.format_seconds(m.step.exposed_communication_seconds)],
        ["  input", units.format_seconds(m.step.input_seconds)],
    ]
    if m.all_reduce_bytes is not None and m.all_reduce_seconds is not None:
        took = units.format_seconds(m.all_reduce_seconds)
        rows.append(["bare all-reduce", f"{units.format_bytes(m.all_reduce_bytes)} in {took}"])
    if m.loss_first is not None and m.loss_last is not None:
        rows.append(["loss", f"{m.loss_first:.4g} at first, {m.loss_last:.4g} at last"])
    rows.append(["windows", f"{len(m.windows)} of {m.windows[0].steps} step(s)"])
    for name, value in m.provenance.model_dump().items():
        shown = units.format_bytes(value) if name == "memory_bytes" else _plain(value)
        rows.append([name.removesuffix("_bytes").replace("_", " "), shown])
    print_table(f"{m.workload}, measurement {m.id}", ["", ""], rows)


@app.command()
def export(
    *,
    export_format: Annotated[
        Format, typer.Option("--format", help="JSON lines with everything, or flat CSV rows.")
    ] = Format.JSON,
    output: Annotated[Path | None, typer.Option(help="File to write (default: stdout).")] = None,
    kind: KindOption = Kind.TRAIN,
    workload: WorkloadOption = None,
) -> None:
    """Write the measurements for another program.

    Example: gpuyard results export --format csv --output results.csv
    """
    import sys

    from gpuyard.errors import GpuyardError, UserMistake
    from gpuyard.files import write_text
    from gpuyard.measure import collectives_to_csv, links_to_csv, to_csv, to_json_lines

    if kind is Kind.LINKS:
        _check_no_workload(workload)
        benches = _store().list_links()
        count = len(benches)
        text = links_to_csv(benches) if export_format is Format.CSV else to_json_lines(benches)
    elif kind is Kind.REJECTED:
        rejected = _store().list_rejected(workload)
        count = len(rejected)
        runs = [r.measurement for r in rejected]
        text = to_csv(runs) if export_format is Format.CSV else to_json_lines(rejected)
    elif kind is Kind.COLLECTIVES:
        _check_no_workload(workload)
        exchanged = _store().list_collectives()
        count = len(exchanged)
        csv = export_format is Format.CSV
        text = collectives_to_csv(exchanged) if csv else to_json_lines(exchanged)
    elif kind in (Kind.RELIEF, Kind.STORAGE):
        if export_format is Format.CSV:
            raise UserMistake(f"a bench of {kind.value} has no flat rows: export it as json")
        kept = _store().list_reliefs(workload) if kind is Kind.RELIEF else _store().list_storage()
        count, text = len(kept), to_json_lines(kept)
    else:
        measurements = _store().list(workload)
        count = len(measurements)
        text = to_csv(measurements) if export_format is Format.CSV else to_json_lines(measurements)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        write_text(output, text)
    except OSError as error:
        raise GpuyardError(f"{output} cannot be written: {error.strerror}") from error
    console(stderr=True).print(
        f"{count} measurement(s) written to {output}", markup=False, soft_wrap=True
    )


def _check_no_workload(workload: str | None) -> None:
    from gpuyard.errors import UserMistake

    if workload is not None:
        raise UserMistake(
            "a bench of links, collectives or storage has no workload; leave out --workload"
        )


def _store() -> "ResultsStore":
    from gpuyard import paths
    from gpuyard.measure import ResultsStore

    return ResultsStore(paths.results_file())


def _plain(value: object) -> str:
    if isinstance(value, tuple | list):
        return "; ".join(
            ",".join(map(str, v)) if isinstance(v, tuple | list) else str(v) for v in value
        )
    return str(value)
