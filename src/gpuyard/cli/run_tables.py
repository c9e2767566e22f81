"""Words and tables for training runs: on what, where, and why one was rejected."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_json, print_table

if TYPE_CHECKING:
    from gpuyard.measure import Measurement, Rejection


def device_of(measurement: "Measurement") -> str:
    """`cpu`, `cuda`, or the GPU that was stood for."""
    synthetic = measurement.synthetic
    return f"synthetic {synthetic.gpu}" if synthetic else measurement.device


def where_of(measurement: "Measurement") -> str:
    """This machine, or the nodes and their links."""
    from gpuyard.units import format_bit_rate

    place = measurement.place
    if place.kind == "here":
        return "this machine"
    text = f"{place.kind}: {', '.join(place.nodes)}"
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
