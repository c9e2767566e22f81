"""`gpuyard doctor`: what this machine is, and which parts of gpuyard can work on it."""

from gpuyard.cli.output import JsonOption, show


def doctor(*, json_output: JsonOption = False) -> None:
    """Say what this machine is, what works on it, and how to fix what doesn't.

    Example: gpuyard doctor
    """
    from gpuyard.hardware.host import discover_host
    from gpuyard.measure.checkup import check_up
    from gpuyard.report.answers.doctor import doctor_answer

    show(doctor_answer(discover_host(), check_up()), json_output=json_output)
