"""`gpuyard doctor`: what this machine is, and which parts of gpuyard can work on it."""

from dataclasses import asdict

from gpuyard.cli.options import JsonOption, console, print_json


def doctor(*, json_output: JsonOption = False) -> None:
    """Say what this machine is, what works on it, and how to fix what doesn't.

    Example: gpuyard doctor
    """
    from gpuyard.hardware import discover_host
    from gpuyard.measure.checkup import check_up

    host, checks = discover_host(), check_up()
    if json_output:
        print_json({"host": asdict(host), "parts": [asdict(check) for check in checks]})
        return
    from rich.markup import escape

    from gpuyard.units import format_bit_rate

    out = console()
    out.print("[bold]This machine[/]")
    gpus = [
        f"{g.name} ({g.memory_bytes / 1e9:.0f} GB)" if g.memory_bytes else g.name for g in host.gpus
    ]
    nics = [f"{n.name} ({format_bit_rate(n.bits_per_second / 8)})" if n.bits_per_second else n.name
            for n in host.nics]  # fmt: skip
    for label, value in (
        ("system", host.system),
        ("CPU", f"{host.cpu}, {host.usable_cores} usable cores"),
        ("memory", f"{host.memory_bytes / 2**30:.1f} GiB"),
        ("GPUs", ", ".join(gpus) or f"none ({host.gpu_problem})"),
        ("driver", host.driver or "none"),
        ("network", ", ".join(nics) or "none but loopback"),
    ):
        out.print(f"  {label:8} {escape(value)}", highlight=False, soft_wrap=True)
    out.print("[bold]What works here[/]")
    for check in checks:
        mark = "[green]yes[/]" if check.works else "[red]no [/]"
        out.print(f"  {mark} {check.part}: {escape(check.why)}", highlight=False, soft_wrap=True)
        if check.fix:
            out.print(f"      fix: {escape(check.fix)}", highlight=False, soft_wrap=True)
