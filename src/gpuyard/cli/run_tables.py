"""Words and tables for training runs: on what, where, and why one was rejected."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.measure import Measurement, Rejection, ResultsStore
    from gpuyard.run.places.place import RunPlace


def device_of(measurement: "Measurement") -> str:
    """`cpu`, `cuda`, or the GPU that was stood for."""
    synthetic = measurement.synthetic
    return f"synthetic {synthetic.gpu}" if synthetic else measurement.device


def where_of(measurement: "Measurement") -> str:
    """Where it was made."""
    return words_of(measurement.place)


def words_of(place: "RunPlace") -> str:
    """This machine, or the nodes and their links."""
    from gpuyard.units import format_bit_rate

    if place.kind == "here":
        return "this machine"
    text = f"{place.kind}: {', '.join(place.nodes)}"
    if place.ranks_per_node is not None and place.ranks_per_node > 1:
        text += f", {place.ranks_per_node} workers a node"
    if place.link_bytes_per_second is not None:
        text += f" at {format_bit_rate(place.link_bytes_per_second)}"
    if place.dilation != 1:
        text += f", time dilated × {place.dilation:g}"
    return text


def list_rejected(rejected: "Sequence[Rejection]", *, json_output: bool) -> None:
    """What was not believed, and why."""
    if json_output:
        print_json([r.model_dump(mode="json") for r in rejected])
        return
    if not rejected:
        console(stderr=True).print("No run was rejected.")
        return
    print_table(
        "not credible, so not among the measurements",
        ["id", "made (UTC)", "workload", "workers", "batch", "remedy", "where", "reason"],
        [
            [
                r.id,
                r.created_at[:16].replace("T", " "),
                r.measurement.workload,
                str(r.measurement.workers),
                str(r.measurement.batch_per_worker),
                r.measurement.remedy.label,
                where_of(r.measurement),
                r.reason,
            ]
            for r in rejected
        ],
    )


def list_runs(store: "ResultsStore", workload: str | None, *, json_output: bool) -> None:
    """Training runs, oldest first."""
    measurements = store.list(workload)
    if json_output:
        print_json([measurement.model_dump(mode="json") for measurement in measurements])
        return
    if not measurements:
        of_workload = f" of {workload!r}" if workload else ""
        console(stderr=True).print(
            f"No measurements{of_workload} in {store.path} yet. "
            "Make some with: gpuyard bench train spoken-digits-linear",
            markup=False,
            soft_wrap=True,
        )
        return
    columns = ["id", "made (UTC)", "workload", "strategy", "remedy", "device", "workers", "batch"]
    print_table(
        str(store.path),
        [*columns, "samples/s", "±", "doubt"],
        [
            [
                m.id,
                m.created_at[:16].replace("T", " "),
                m.workload,
                m.strategy,
                m.remedy.label,
                device_of(m),
                str(m.workers),
                str(m.batch_per_worker),
                f"{m.samples_per_second:,.1f}",
                f"{100 * (m.high - m.low) / 2 / m.samples_per_second:.1f} %",
                m.doubt or "",
            ]
            for m in measurements
        ],
    )
