"""Benches of storage as tables."""

from typing import TYPE_CHECKING

from gpuyard.cli.options import console, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuyard.measure.storage import StorageBench

_CACHE_WORDS = {
    "direct": "page cache bypassed (O_DIRECT)",
    "dropped": "page cache dropped before each read (posix_fadvise)",
    "outgrown": "data set at least 5 × memory",
    "none": "page cache in the way",
}


def print_storage(bench: "StorageBench") -> None:
    """Every trial, and the verdict."""
    from gpuyard.units import format_byte_rate, format_bytes, format_seconds, format_share

    if bench.trials:
        print_table(
            f"{bench.model} on {bench.gpu}, {bench.batch} samples of "
            f"{format_bytes(bench.record_bytes)} in {format_seconds(bench.compute_seconds)}",
            ["GPUs", "utilisation", "samples/s", "read", ""],
            [
                [
                    str(trial.gpus),
                    format_share(trial.utilisation),
                    f"{trial.samples_per_second:,.0f}",
                    format_byte_rate(trial.bytes_per_second),
                    "passes" if trial.passed else "starves",
                ]
                for trial in bench.trials
            ],
        )
    out = console()
    made = "of our own, removed again" if bench.own_dataset else "that was there"
    out.print(
        f"{bench.filesystem}, {format_bytes(bench.dataset_bytes)} {made}; "
        f"{_CACHE_WORDS[bench.cache]}.",
        highlight=False,
        soft_wrap=True,
    )
    match bench.verdict:
        case "refused":
            out.print(f"No verdict: {bench.reason}.", highlight=False, soft_wrap=True)
        case "passes":
            out.print(
                f"This storage keeps {bench.asked_gpus} GPU(s) busy; the most that passed is "
                f"{bench.most_gpus}.",
                highlight=False,
                soft_wrap=True,
            )
        case "starves":
            out.print(
                f"This storage starves {bench.asked_gpus} GPU(s); the most that passed is "
                f"{bench.most_gpus}.",
                highlight=False,
                soft_wrap=True,
            )


def list_storage(benches: "Sequence[StorageBench]", *, json_output: bool) -> None:
    """One a row."""
    if json_output:
        print_json([bench.model_dump(mode="json") for bench in benches])
        return
    if not benches:
        console(stderr=True).print(
            "No storage was measured yet. Try: gpuyard bench storage .", soft_wrap=True
        )
        return
    print_table(
        "benches of storage",
        ["id", "made (UTC)", "path", "file system", "model", "GPU", "asked", "most", "verdict"],
        [
            [
                bench.id,
                bench.created_at[:16].replace("T", " "),
                bench.path,
                bench.filesystem,
                bench.model,
                bench.gpu,
                str(bench.asked_gpus),
                "" if bench.most_gpus is None else str(bench.most_gpus),
                bench.verdict,
            ]
            for bench in benches
        ],
    )
