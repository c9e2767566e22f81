"""What this machine has, and which parts of gpuyard work on it."""

from gpuyard.api.result import Result, Row, wrap
from gpuyard.hardware.host import discover_host
from gpuyard.measure.doctor import diagnose_machine
from gpuyard.report.answers.doctor import doctor_answer


def doctor() -> Result[Row]:
    """Show this machine's hardware, which parts of gpuyard work on it, and how to fix the others; each row is a part."""
    answer = doctor_answer(discover_host(), diagnose_machine())
    return Result(answer, wrap(answer.document["parts"]))
