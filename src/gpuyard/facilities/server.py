"""Build the rack device of a cluster's machine; values that the catalog lacks are estimated."""

import datetime
import math

from gpuyard.catalog import Gpu, Machine, gpus, machines
from gpuyard.catalog.facility import ServerModel, servers
from gpuyard.errors import UserMistake
from gpuyard.facilities.device import RackDevice
from gpuyard.facilities.power.wall_power import WallPower, estimate_wall_power
from gpuyard.specs import Cluster

_SUPPLY_SIZES = (750.0, 1000.0, 1200.0, 1600.0, 2000.0, 2200.0, 2700.0, 3000.0, 3300.0)
_MAX_TOWER_GPUS = 4
_CLOUDS = ("aws-", "gcp-", "azure-")


def build_server_device(cluster: Cluster) -> tuple[RackDevice, WallPower]:
    """Return the device of one node, and its power at the wall."""
    if isinstance(cluster.machine, str):
        machine = machines().get(cluster.machine)
        if machine.id.startswith(_CLOUDS):
            raise UserMistake(
                f"{machine.name} is a cloud instance and needs no room; choose a machine that you can own"
            )
        gpu, count, name = gpus().get(machine.gpu), machine.gpus, machine.name
    else:
        machine = None
        gpu, count = gpus().get(cluster.machine.gpu), cluster.machine.gpus
        name = f"server with {count} × {gpu.name}" if count > 1 else f"server with {gpu.name}"
    model = _find_model(cluster, gpu, count, machine)
    if cluster.power_cap is not None and cluster.power_cap < gpu.board_watts:
        model, gpu = _cap_power(model, gpu, count, cluster.power_cap)
    power = estimate_wall_power(model, gpu, count, machine)
    device = RackDevice(
        kind="server",
        name=name.replace("server with", "workstation with") if model.tower else name,
        rack_units=model.rack_units,
        depth_mm=model.depth_mm,
        weight_kg=model.weight_kg,
        typical_watts=power.typical_watts,
        peak_watts=power.peak_watts,
        supplies=model.supplies,
        supplies_needed=model.supplies_needed,
        supplies_minimum=model.supplies_minimum,
        inlet=model.inlet,
        volts_minimum=model.volts_minimum,
        tower=model.tower,
        noise_dba=model.noise_dba,
        price_usd=machine.price_usd if machine else None,
        price_date=str(machine.date) if machine and machine.price_usd else "",
        basis=f"{power.basis}; size and weight {'as listed' if model.basis == 'listed' else 'estimated'}",
        part=machine.id if machine else "",
    )
    return device, power


def _cap_power(model: ServerModel, gpu: Gpu, count: int, watts: float) -> tuple[ServerModel, Gpu]:
    """Return the server and its GPU with less power; the supplies stay as they are."""
    nameplate = model.max_watts
    if nameplate is not None:
        nameplate = max(nameplate - count * (gpu.board_watts - watts), 1.0)
    return (
        model.model_copy(update={"max_watts": nameplate}),
        gpu.model_copy(update={"board_watts": watts}),
    )


def _find_model(cluster: Cluster, gpu: Gpu, count: int, machine: Machine | None) -> ServerModel:
    if machine is not None and machine.id in servers():
        return servers().get(machine.id)
    topology, topology_set = (machine.topology, True) if machine else (None, True)
    if not isinstance(cluster.machine, str):
        topology = cluster.machine.topology
        topology_set = "topology" in cluster.machine.model_fields_set
    units = machine.rack_units if machine else None
    tower = units is None and count <= _MAX_TOWER_GPUS and topology in {"workstation", "consumer"}
    # a default topology does not turn several machines into workstations
    tower = tower and (topology_set or cluster.nodes == 1)
    modules = gpu.form_factor.upper().startswith(("SXM", "OAM"))
    if units is None:
        units = 8 if modules and gpu.released >= 2022 else 4 if count > 1 else 2
    return _estimate_model(gpu, count, machine, tower=tower, units=units)


def _estimate_model(
    gpu: Gpu, count: int, machine: Machine | None, *, tower: bool, units: int
) -> ServerModel:
    """Estimate a server: supplies that carry its parts, doubled in a rack server, and a typical size and weight."""
    nameplate = machine.max_watts if machine else None
    rest = 300 if tower else 450  # CPUs, board, and disks
    output = nameplate or (count * (gpu.board_watts + 20) + rest) * (1.1 if tower else 1.2)
    needed = 1 if tower else max(math.ceil(output / 3300), 1)
    size = next((s for s in _SUPPLY_SIZES if s * needed >= output), _SUPPLY_SIZES[-1])
    return ServerModel(
        id=machine.id if machine else "estimated",
        name="estimated",
        rack_units=units,
        depth_mm=600 if tower else 800,
        weight_kg=20 + 1.5 * count if tower else 8 + 6 * units + 1.3 * count,
        max_watts=nameplate,
        supplies=needed if tower else 2 * needed,
        supplies_needed=needed,
        supplies_minimum=needed,
        supply_watts=max(size, output / needed),
        supply_grade="platinum",
        inlet="c20" if size >= 1600 else "c14",
        volts_minimum=100 if tower or size <= 1200 else 200,
        tower=tower,
        noise_dba=55 if tower else None,
        basis="estimate",
        source="estimated from the number and power of the GPUs",
        date=datetime.date(2026, 11, 16),
    )
