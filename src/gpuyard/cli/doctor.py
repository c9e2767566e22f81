"""`gpuyard doctor`: describe this machine and the parts of gpuyard that work on it."""

from gpuyard.cli.output import JsonOption, show


def doctor(*, json_output: JsonOption = False) -> None:
    """Show this machine's hardware, which parts of gpuyard work on it, and how to fix the others.

    Example: gpuyard doctor
    """
    from gpuyard.hardware.host import discover_host
    from gpuyard.measure.doctor import diagnose_machine
    from gpuyard.report.answers.doctor import doctor_answer

    show(doctor_answer(discover_host(), diagnose_machine()), json_output=json_output)
