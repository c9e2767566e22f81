"""Draws the documentation's pictures again: draw_docs.py [--check].

With --check nothing is written; the exit status is 1 where a picture is missing or no longer current.
Those of labs are drawn from results that are kept for the tests; to measure them again:
gpuyard bench sweep examples/NAME.sweep.yaml --output tests/data/lab/NAME.jsonl
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from gpuyard.catalog import gpus, machines
from gpuyard.catalog.facility import plugs
from gpuyard.catalog.specfiles import read_site, read_sweep
from gpuyard.draw.fabric import fabric_svg
from gpuyard.draw.plugs import plugs_svg
from gpuyard.draw.policies import CompletionLine, GoalPoint, completion_svg, goals_svg
from gpuyard.draw.racks import racks_svg
from gpuyard.draw.topology import topology_svg
from gpuyard.facility.design import design_facility
from gpuyard.facility.fabric import FabricRequest, design_fabric
from gpuyard.files import write_text
from gpuyard.hardware.clusters import read_cluster
from gpuyard.hardware.presets import PRESETS, build_preset
from gpuyard.jobs.policies import Pool, policy_of
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.measure import Measurement, read_results
from gpuyard.report.scaling import scaling_picture

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
IMAGES = ROOT / "docs" / "images"
MACHINES = ("dgx-1-p100", "dgx-2", "gb200-nvl72")  # presets with other GPUs than their usual ones
ROOMS = {"workstation": "office", "rack": "machine-room", "dgx-h100": "colocation"}
FABRICS = {
    "32-dgx-h100": FabricRequest(32, 8, "nvidia-qm9700", rails=8),
    "512-nodes": FabricRequest(512, 8, "nvidia-qm9700", rails=8),
    "oversubscribed": FabricRequest(96, 1, "nvidia-qm9700", oversubscription=3),
}
LABS = ("choke", "slices")
STRATEGIES = ("min-time", "max-jobs")
GOALS = (*STRATEGIES, "shortest-first", "fair-share", "tiresias", "optimus", "fifo")
POLICIES = ("min-time", "shortest-first", "tiresias", "optimus", "fair-share", "fifo")


def drawings() -> Iterator[tuple[str, str]]:
    """Names of files and what is in them."""
    for name, preset in PRESETS.items():
        graph = build_preset(name, gpus().get(preset.usual_gpu), preset.usual_gpus)
        yield f"topology-{name}", topology_svg(graph)
    for name in MACHINES:
        machine = machines().get(name)
        graph = build_preset(machine.topology, gpus().get(machine.gpu), machine.gpus)
        yield f"topology-{name}", topology_svg(graph)
    yield "plugs", plugs_svg(list(plugs()))
    for cluster, site in ROOMS.items():
        spec = read_cluster(str(EXAMPLES / f"{cluster}.cluster.yaml"))
        design = design_facility(spec, read_site(EXAMPLES / f"{site}.site.yaml"))
        yield f"room-{cluster}", racks_svg(design)
    for name, request in FABRICS.items():
        yield f"fabric-{name}", fabric_svg(design_fabric(request))
    for name in LABS:
        title = read_sweep(EXAMPLES / f"{name}.sweep.yaml").name
        found = read_results([ROOT / "tests" / "data" / "lab" / f"{name}.jsonl"])
        yield f"lab-{name}", scaling_picture(found.of(Measurement), title)
    yield "simulate-policies", policies_picture()
    yield "policies-goals", goals_picture()


def policies_picture() -> str:
    """The sixth workload of the Pollux paper under several policies; min-time with both choices of the batch."""
    file = EXAMPLES / "traces" / "pollux" / "workload-6.csv"
    users, adaptive = read_trace(file), read_trace(file, batch="adaptive")
    pool = Pool.uniform(16, 4)
    found = {"min-time, own batch": simulate(adaptive, policy_of("min-time"), pool)}
    found |= {name: simulate(users, policy_of(name), pool) for name in POLICIES}
    lines = [
        CompletionLine(name, tuple(outcome.completion_seconds.tolist()))
        for name, outcome in found.items()
    ]
    basis = "160 jobs of six kinds in 8 hours on 64 T4, workload 6 of the Pollux paper; beside each policy its mean"
    return completion_svg(lines, "How soon jobs end under which policy", basis)


def goals_picture() -> str:
    """The same jobs with deadlines: what each policy makes of two goals."""
    pool = Pool.uniform(16, 4)
    file = EXAMPLES / "traces" / "pollux" / "workload-6.csv"
    trace = read_trace(file).with_deadlines(1, 3, pool)
    points = []
    for name in GOALS:
        outcome = simulate(trace, policy_of(name), pool)
        met = outcome.deadlines_met / outcome.deadlines
        mean = float(outcome.completion_seconds.mean())
        points.append(GoalPoint(name, mean, met, strong=name in STRATEGIES))
    basis = "160 jobs on 64 T4, workload 6 of the Pollux paper, each due after 1 to 3 times the time that it takes alone"
    return goals_svg(points, "Two goals: jobs that end soon, or by their deadlines", basis)


def main() -> int:
    check, stale = "--check" in sys.argv[1:], 0
    for name, svg in drawings():
        path = IMAGES / f"{name}.svg"
        if path.is_file() and path.read_text(encoding="utf-8") == svg:
            continue
        stale += check
        print(f"{path.relative_to(ROOT)}{': run scripts/draw_docs.py' if check else ''}")
        if not check:
            write_text(path, svg)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
