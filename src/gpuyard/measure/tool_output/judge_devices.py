"""Judges slots, clocks, and errors of GPUs, slots of network cards, and PCIe bridges."""

from collections.abc import Iterator, Sequence

from gpuyard.measure.links.compare import find_slot_causes
from gpuyard.measure.record import Cause
from gpuyard.measure.tool_output.judgment import Judgment
from gpuyard.measure.tool_output.readings import DeviceHealth
from gpuyard.units import format_count, format_watts


def judge_device(health: DeviceHealth) -> Judgment:
    """Judge a GPU or a network card by what it reports about itself."""
    causes = list(_find_causes(health))
    return Judgment(
        f"{health.slot.gpu} {health.name} ({health.slot.address})",
        "",
        "slow" if causes else "normal",
        None,
        causes=tuple(causes),
    )


def _find_causes(health: DeviceHealth) -> Iterator[Cause]:
    for cause in find_slot_causes(health.slot):
        if cause.name != "power-saving":
            yield cause
        elif health.is_network_card:  # which, unlike a GPU, does not slow its link when idle
            next_step = "check the slot's PCIe generation in the BIOS, the riser, and the cable"
            yield cause.model_copy(update={"name": "slow-slot", "next_step": next_step})
        elif not health.is_idle:
            yield cause
    for reason in health.throttle_reasons:
        lowered = (
            health.power_limit_watts is not None
            and health.default_power_limit_watts is not None
            and health.power_limit_watts < health.default_power_limit_watts
        )
        if reason == "SW Power Cap" and not lowered:
            continue  # every busy GPU runs into its own limit
        limit = (
            f": {format_watts(health.power_limit_watts or 0)} instead of "
            f"{format_watts(health.default_power_limit_watts or 0)}"
            if reason == "SW Power Cap"
            else ""
        )
        yield Cause(
            name="throttled",
            why=f"its clocks are held down: {reason}{limit}",
            next_step="check temperature, fans, and power cables, and nvidia-smi -q -d PERFORMANCE,POWER under load",
        )
    if health.uncorrectable_errors:
        yield Cause(
            name="memory-errors",
            why=f"{health.uncorrectable_errors} uncorrectable memory errors since the last reset",
            next_step="drain the node, reset the GPU, and run dcgmi diag -r 3; replace it if they come back",
        )
    if health.pending_repairs:
        yield Cause(
            name="pending-repairs",
            why="faulty memory waits to be replaced by spare rows",
            next_step="drain the node and reset the GPU: nvidia-smi --gpu-reset",
        )


def judge_acs(bridges: Sequence[str]) -> Judgment:
    """Say that bridges send traffic between GPUs through the CPU."""
    cause = Cause(
        name="acs",
        why=f"ACS is on at {', '.join(bridges[:4])}{' …' if len(bridges) > 4 else ''}: traffic between "
        "GPUs goes up to the CPU",
        next_step="if this host has no virtual machines, turn ACS off in the BIOS, or with: "
        f"setpci -s {bridges[0]} ECAP_ACS+6.w=0000",
    )
    return Judgment(format_count(len(bridges), "PCIe bridge"), "", "slow", None, causes=(cause,))
