"""What this machine is, and which parts of gpuyard can work on it."""

from collections.abc import Sequence
from dataclasses import asdict

from gpuyard.hardware.host import ThisHost
from gpuyard.measure.checkup import Diagnosis
from gpuyard.report.answer import Answer, Bullets, DefinitionList, Section, Text
from gpuyard.units import format_bit_rate


def doctor_answer(host: ThisHost, diagnoses: Sequence[Diagnosis]) -> Answer:
    """The machine's parts, then one line for each part of gpuyard."""
    gpus = [
        f"{g.name} ({g.memory_bytes / 1e9:.0f} GB)" if g.memory_bytes else g.name for g in host.gpus
    ]
    nics = [
        f"{n.name} ({format_bit_rate(n.bits_per_second / 8)})" if n.bits_per_second else n.name
        for n in host.nics
    ]
    machine = (
        ("system", host.system),
        ("CPU", f"{host.cpu}, {host.usable_cores} usable cores"),
        ("memory", f"{host.memory_bytes / 2**30:.1f} GiB"),
        ("GPUs", ", ".join(gpus) or f"none ({host.gpu_problem})"),
        ("driver", host.driver or "none"),
        ("network", ", ".join(nics) or "none but loopback"),
    )
    return Answer(
        [
            Section("This machine", [DefinitionList(machine)]),
            Section("What works here", [Bullets([_line(one) for one in diagnoses])]),
        ],
        {"host": asdict(host), "parts": [asdict(one) for one in diagnoses]},
        verb="doctor",
    )


def _line(diagnosis: Diagnosis) -> Text:
    fix = f"; fix: {diagnosis.fix}" if diagnosis.fix else ""
    said = f"{diagnosis.part}: {diagnosis.why}{fix}"
    return Text(f"yes: {said}", "good") if diagnosis.works else Text(f"no: {said}", "caution")
