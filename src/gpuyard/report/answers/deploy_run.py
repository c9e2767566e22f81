"""Answers of `gpuyard deploy run`: what it would do, and what it has done."""

from typing import Any

from gpuyard.deploy.access.sync import CopyResult
from gpuyard.deploy.run.plan import RunPlan
from gpuyard.deploy.run.results import FetchedResults
from gpuyard.report.answer import Answer, Bullets, Part, Sentence
from gpuyard.units import format_bytes, format_count

_MAX_NAMES = 5


def run_plan_answer(plan: RunPlan, copied: CopyResult, *, fetch: bool) -> Answer:
    """Show what the run would copy, start, and fetch."""
    machines = format_count(len(plan.hosts), "machine")
    gpus = format_count(len(plan.hosts) * plan.gpus_per_node, "GPU")
    through = "as one Slurm job" if plan.launcher == "slurm" else "over ssh"
    parts: list[Part] = [
        Sentence(f"1. Copy {_count_files(copied)} to {_destination(plan)}."),
        Sentence(f"2. Run this {through}, with {gpus} on {machines}:"),
        Bullets([f"{name}: {line}" for name, line in plan.describe_commands()]),
        Sentence(
            f"3. Fetch the files that the run creates or changes to {plan.copy.folder}."
            if fetch
            else "3. Fetch nothing."
        ),
    ]
    document = {**_describe(plan, copied), "dry_run": True, "fetch": fetch}
    return Answer(parts, document, verb="deploy run")


def run_answer(plan: RunPlan, copied: CopyResult, results: FetchedResults, status: int) -> Answer:
    """Report the exit status and the fetched files."""
    ended = "The command succeeded." if status == 0 else f"The command exited with status {status}."
    parts: list[Part] = [Sentence(ended, "bad" if status else "good")]
    if results.fetched:
        size = format_bytes(sum(size for _, size in results.fetched))
        count = format_count(len(results.fetched), "file")
        names = _list_names([name for name, _ in results.fetched])
        parts.append(Sentence(f"Fetched {count} ({size}): {names}."))
    if results.kept:
        parts.append(
            Sentence(
                f"Changed here as well, so not fetched from {_destination(plan)}: {_list_names(results.kept)}.",
                "caution",
            )
        )
    document = {
        **_describe(plan, copied),
        "dry_run": False,
        "exit_status": status,
        "fetched": [{"file": name, "bytes": size} for name, size in results.fetched],
        "kept": list(results.kept),
    }
    return Answer(parts, document, verb="deploy run")


def _describe(plan: RunPlan, copied: CopyResult) -> dict[str, Any]:
    return {
        "deployment": plan.loaded.deployment.name,
        "from": str(plan.copy.folder),
        "to": plan.copy.destination,
        "copied": [{"file": name, "bytes": size} for name, size in copied.sent],
        "launcher": plan.launcher,
        "machines": [host.name for host in plan.hosts],
        "gpus_per_machine": plan.gpus_per_node,
        "commands": [{"machine": name, "command": line} for name, line in plan.describe_commands()],
    }


def _destination(plan: RunPlan) -> str:
    return f"{plan.head.name}:{plan.copy.destination}"


def _count_files(copied: CopyResult) -> str:
    count = format_count(len(copied.sent), "file")
    return f"{count} ({format_bytes(copied.sent_bytes)})" if copied.sent else "no files"


def _list_names(names: "list[str] | tuple[str, ...]") -> str:
    more = len(names) - _MAX_NAMES
    shown = ", ".join(names[:_MAX_NAMES])
    return f"{shown}, and {more:,} more" if more > 0 else shown
