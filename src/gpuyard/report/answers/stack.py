"""Answers of the `gpuyard stack` commands: the locked versions, the installation, and the status of this machine."""

from collections.abc import Sequence
from dataclasses import asdict

from gpuyard.deploy.ansible.run import PlayRecap
from gpuyard.deploy.stack.install import InstalledEnvironment
from gpuyard.deploy.stack.lock import Lock
from gpuyard.deploy.stack.status import StackFinding
from gpuyard.report.answer import Answer, Bullets, Column, Part, Section, Sentence, Table, Text

_NAMES = {"pytorch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet"}


def lock_answer(lock: Lock) -> Answer:
    single = (
        ("NVIDIA driver", f"{lock.driver.version} branch", lock.driver),
        ("CUDA toolkit", lock.cuda.version, lock.cuda),
        ("Docker", f"{lock.docker.version} or later", lock.docker),
        ("nvidia-container-toolkit", lock.container_toolkit.version, lock.container_toolkit),
        ("Horovod", lock.horovod.version, lock.horovod),
    )
    rows = [(name, version, part.note, part.date) for name, version, part in single]
    frameworks = [
        (
            _NAMES[name],
            framework.version,
            framework.cuda or "none",
            framework.cudnn or "none",
            framework.nccl or "none",
            family.minimum_driver if (family := lock.family(framework.cuda)) else "none",
            ", ".join(framework.pythons),
        )
        for name, framework in lock.frameworks.items()
    ]
    parts: list[Part] = [
        Table(f"Lock {lock.name}", ("part", "version", "reason", Column("date", drop=1)), rows),
        Table(
            "Frameworks, each in its own environment",
            (
                "framework",
                "version",
                "CUDA",
                Column("cuDNN", drop=2),
                Column("NCCL", drop=2),
                "minimum driver",
                Column("Python", drop=1),
            ),
            frameworks,
        ),
        *(
            Sentence(f"{_NAMES[name]}: {framework.note}.", "quiet")
            for name, framework in lock.frameworks.items()
            if framework.note
        ),
        Sentence(
            "Use --json to see the source of each part and all packages that pip installs.", "quiet"
        ),
    ]
    return Answer(parts, lock.model_dump(mode="json"), verb="stack lock")


def install_answer(
    recap: PlayRecap,
    undo: Sequence[str],
    environments: Sequence[InstalledEnvironment] = (),
    *,
    dry_run: bool,
) -> Answer:
    """List the changes and how to undo them; at the end, how every user gets the frameworks."""
    changed = list(dict.fromkeys(recap.tasks))
    parts: list[Part] = []
    if changed:
        title = "Changes that would be made" if dry_run else "Changes made"
        parts.append(Section(title, [Bullets(changed)]))
    else:
        parts.append(Sentence("No change is needed: this machine matches the lock.", "good"))
    notes = [note.removeprefix("this machine: ") for note in dict.fromkeys(recap.notes)]
    if notes:
        parts.append(Section("Notes", [Bullets(notes)]))
    if undo and not dry_run:
        parts.append(Section("To undo the installation, run as root", [Bullets(undo)]))
    if not dry_run:
        parts += _describe_environments(environments)
    document = {
        "dry_run": dry_run,
        "changed_tasks": changed,
        "notes": notes,
        "undo": list(undo),
        "environments": _list_environments(environments),
    }
    return Answer(parts, document, verb="stack install")


def _describe_environments(environments: Sequence[InstalledEnvironment]) -> list[Part]:
    """Say which Python has each framework: the system's own python3 has none of them."""
    lines = [
        line
        for each in environments
        for line in (
            f"{_NAMES[each.framework]}: {each.python} -c 'import {each.package}'",
            f"In a shell, so that python3 is this one: {each.activate}",
        )
    ]
    return [Section("To use it, as any user", [Bullets(lines)])] if lines else []


def _list_environments(environments: Sequence[InstalledEnvironment]) -> list[dict[str, str]]:
    return [
        {"framework": each.framework, "python": each.python, "activate": each.activate}
        for each in environments
    ]


def status_answer(
    lock: Lock,
    findings: Sequence[StackFinding],
    undo: Sequence[str],
    environments: Sequence[InstalledEnvironment] = (),
) -> Answer:
    rows = [
        (
            Text(finding.state, "good" if finding.ok else "bad"),
            finding.part,
            finding.expected,
            finding.actual,
        )
        for finding in findings
    ]
    mismatches = [finding for finding in findings if not finding.ok]
    parts: list[Part] = [Table(f"Lock {lock.name}", ("", "part", "lock", "here"), rows)]
    if mismatches:
        reasons = [
            f"{finding.part}: {finding.why}{f' (fix: {finding.fix})' if finding.fix else ''}"
            for finding in mismatches
        ]
        parts.append(Section("Why it matters", [Bullets(reasons)]))
    else:
        parts.append(Sentence("This machine matches the lock.", "good"))
    if undo:
        parts.append(Section("To undo the installation, run as root", [Bullets(undo)]))
    parts += _describe_environments(environments)
    document = {
        "lock": lock.name,
        "ok": not mismatches,
        "findings": [asdict(finding) for finding in findings],
        "undo": list(undo),
        "environments": _list_environments(environments),
    }
    return Answer(parts, document, verb="stack status", rows="findings")
