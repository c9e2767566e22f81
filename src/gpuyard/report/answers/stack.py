"""What `gpuyard stack` says: which versions belong together, what differs from them here, and what was installed."""

from collections.abc import Sequence
from dataclasses import asdict

from gpuyard.deploy.ansible.run import PlayRecap
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
        Table(f"Lock {lock.name}", ("part", "version", "why", Column("looked up", drop=1)), rows),
        Table(
            "Frameworks, each in an environment of its own",
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
        Sentence("--json says where each is from, and everything that pip installs.", "quiet"),
    ]
    return Answer(parts, lock.model_dump(mode="json"), verb="stack lock")


def install_answer(outcome: PlayRecap, undo: Sequence[str], *, dry_run: bool) -> Answer:
    changed = list(dict.fromkeys(outcome.tasks))
    parts: list[Part] = []
    if changed:
        head = "What would be changed" if dry_run else "What was changed"
        parts.append(Section(head, [Bullets(changed)]))
    else:
        parts.append(
            Sentence("Nothing has to be changed: this machine is as the lock says.", "good")
        )
    notes = [note.removeprefix("this machine: ") for note in dict.fromkeys(outcome.notes)]
    if notes:
        parts.append(Section("To know", [Bullets(notes)]))
    if undo and not dry_run:
        parts.append(Section("To take it away again, as root", [Bullets(undo)]))
    document = {
        "dry_run": dry_run,
        "changed_tasks": changed,
        "notes": notes,
        "undo": list(undo),
    }
    return Answer(parts, document, verb="stack install")


def status_answer(lock: Lock, findings: Sequence[StackFinding], undo: Sequence[str]) -> Answer:
    rows = [
        (
            Text(finding.state, "good" if finding.ok else "bad"),
            finding.part,
            finding.wanted,
            finding.found,
        )
        for finding in findings
    ]
    wrong = [finding for finding in findings if not finding.ok]
    parts: list[Part] = [Table(f"Lock {lock.name}", ("", "part", "lock", "here"), rows)]
    if wrong:
        said = [
            f"{finding.part}: {finding.why}{f' (fix: {finding.fix})' if finding.fix else ''}"
            for finding in wrong
        ]
        parts.append(Section("Why it matters", [Bullets(said)]))
    else:
        parts.append(Sentence("This machine is as the lock says.", "good"))
    if undo:
        parts.append(Section("To take away what was installed here, as root", [Bullets(undo)]))
    document = {
        "lock": lock.name,
        "ok": not wrong,
        "findings": [asdict(finding) for finding in findings],
        "undo": list(undo),
    }
    return Answer(parts, document, verb="stack status")
