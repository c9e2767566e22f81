"""Whether everybody keeps to their leases."""

from collections.abc import Sequence
from dataclasses import asdict

from gpuyard.report.answer import Answer, Bullets, Part, Sentence, Text
from gpuyard.report.answers.share.who import guard_sentence
from gpuyard.share.watch.violations import IDLE, Violation


def audit_answer(
    found: Sequence[Violation],
    told: Sequence[Violation],
    ended: Sequence[Violation],
    *,
    readable: bool,
    guard: str,
) -> Answer:
    """Each violation, and what was done about it."""
    parts: list[Part] = []
    if found:
        parts.append(Bullets([Text(violation.sentence, "bad") for violation in found]))
    else:
        parts.append(Sentence("Everybody keeps to their leases.", "good"))
    if not readable:
        parts.append(
            Sentence(
                "What runs on the GPUs can't be read here, so only leases were checked.", "caution"
            )
        )
    if told:
        parts.append(Sentence(f"{len(told)} were warned on their terminals."))
    parts.extend(
        Sentence(
            f"Lease {one.lease} of {one.user} was released."
            if one.kind == IDLE
            else f"Process {one.pid} of {one.user} was ended."
        )
        for one in ended
    )
    parts.append(Sentence(guard_sentence(guard)))
    document = {
        "violations": [asdict(violation) for violation in found],
        "warned": [violation.pid for violation in told],
        "stopped": [violation.pid for violation in ended],
        "gpus_readable": readable,
        "guard": guard,
    }
    return Answer(parts, document, verb="audit")
