"""The answer of `gpuyard doctor`: this machine's hardware, and which parts of gpuyard work on it."""

from collections.abc import Sequence
from dataclasses import asdict

from gpuyard.hardware.host import HostInfo
from gpuyard.measure.doctor import Diagnosis
from gpuyard.report.answer import Answer, Bullets, DefinitionList, Section, Text
from gpuyard.units import format_bit_rate


def doctor_answer(host: HostInfo, diagnoses: Sequence[Diagnosis]) -> Answer:
    """List the machine's hardware, then one line for each part of gpuyard."""
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
            Section("What works here", [Bullets([_format_line(d) for d in diagnoses])]),
        ],
        {"host": asdict(host), "parts": [asdict(diagnosis) for diagnosis in diagnoses]},
        verb="doctor",
        rows="parts",
    )


def _format_line(diagnosis: Diagnosis) -> Text:
    fix = f"; fix: {diagnosis.fix}" if diagnosis.fix else ""
    line = f"{diagnosis.part}: {diagnosis.why}{fix}"
    return Text(f"yes: {line}", "good") if diagnosis.works else Text(f"no: {line}", "caution")
