"""`gpuyard doctor`: describe this machine and the parts of gpuyard that work on it."""

from gpuyard.cli.output import JsonOption, show


def doctor(*, json_output: JsonOption = False) -> None:
    """Show this machine's hardware, which parts of gpuyard work on it, and how to fix the others.

    Example: gpuyard doctor
    """
    from gpuyard.api.doctor import doctor as examine

    show(examine().answer, json_output=json_output)
