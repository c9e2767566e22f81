"""Benches of remedies as tables."""

from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_json, print_table
from gpuyard.cli.run_tables import words_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.measure.relief import ReliefResult, Relieved


def print_relief(result: "ReliefResult") -> None:
    """Each remedy with what it brings, what was foreseen, and what was learnt."""
    from gpuyard.units import format_share

    def learnt(run: "Relieved") -> str:
        share = result.learnt(run)
        return "" if share is None else format_share(share)

    print_table(
        f"{result.workload}: {result.workers} workers, batch {result.batch_per_worker}, "
        f"{result.runs[0].samples:,} samples each",
        ["remedy", "samples/s", "speed-up", "foreseen", "loss", "learnt", ""],
        [
            [
                run.remedy.label,
                f"{run.samples_per_second:,.1f}",
                f"{result.speed_up(run):.2f}",
                "" if foreseen is None else f"{foreseen:.2f}",
                "no number" if run.loss is None else f"{run.loss:.4f}",
                learnt(run),
                "" if run.remedy.plain else "equal" if result.equal_loss(run) else "worse",
            ]
            for run, foreseen in zip(result.runs, result.foreseen_of_each, strict=True)
        ],
    )
    if result.plain.loss_first is not None:
        console().print(f"Loss before training: {result.plain.loss_first:.4f}.", highlight=False)
    best = result.best
    words = (
        "No remedy is faster at equal loss."
        if best.remedy.plain
        else f"Best at equal loss: {best.remedy.label}, {result.speed_up(best):.2f} × plain DDP."
    )
    console().print(words, highlight=False)


def list_reliefs(reliefs: "Sequence[ReliefResult]", *, json_output: bool) -> None:
    """One a row."""
    if json_output:
        print_json([relief.as_json() for relief in reliefs])
        return
    if not reliefs:
        console(stderr=True).print(
            "No remedies were measured yet. Try: gpuyard bench relief spoken-digits-linear",
            soft_wrap=True,
        )
        return
    print_table(
        "benches of remedies",
        ["id", "made (UTC)", "workload", "workers", "batch", "where", "best", "× plain DDP"],
        [
            [
                relief.id,
                relief.created_at[:16].replace("T", " "),
                relief.workload,
                str(relief.workers),
                str(relief.batch_per_worker),
                words_of(relief.place),
                relief.best.remedy.label,
                f"{relief.speed_up(relief.best):.2f}",
            ]
            for relief in reliefs
        ],
    )
