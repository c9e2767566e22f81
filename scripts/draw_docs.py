"""Draw the documentation's pictures: draw_docs.py [--check].

With --check, the script writes nothing; its exit status is 1 if a picture is missing or outdated. Lab pictures
show the results that the tests keep. To measure them again:
gpuyard bench sweep examples/NAME.sweep.yaml --output tests/data/lab/NAME.jsonl
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from gpuyard.api.goodput import goodput
from gpuyard.catalog import gpus, machines
from gpuyard.catalog.facility import plugs
from gpuyard.catalog.specfiles import read_site, read_sweep
from gpuyard.draw.fabric import draw_fabric_svg
from gpuyard.draw.plugs import draw_plugs_svg
from gpuyard.draw.policies import CompletionLine, GoalPoint, draw_completion_svg, draw_goals_svg
from gpuyard.draw.racks import draw_racks_svg
from gpuyard.draw.topology import draw_topology_svg
from gpuyard.facilities.design import design_facility
from gpuyard.facilities.fabric import FabricRequest, design_fabric
from gpuyard.files import write_text
from gpuyard.hardware.clusters import read_cluster
from gpuyard.hardware.presets import PRESETS, build_preset
from gpuyard.jobs.simulate.loop import simulate
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.measure.reading import read_results
from gpuyard.measure.training.records import Measurement
from gpuyard.policies import Pool, get_policy
from gpuyard.report.scaling import draw_scaling

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
IMAGES = ROOT / "docs" / "images"
MACHINES = ("dgx-1-p100", "dgx-2", "gb200-nvl72")  # presets with other GPUs than their defaults
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
    """Yield the name and the SVG text of each picture."""
    for name, preset in PRESETS.items():
        graph = build_preset(name, gpus().get(preset.default_gpu), preset.default_gpus)
        yield f"topology-{name}", draw_topology_svg(graph)
    for name in MACHINES:
        machine = machines().get(name)
        graph = build_preset(machine.topology, gpus().get(machine.gpu), machine.gpus)
        yield f"topology-{name}", draw_topology_svg(graph)
    yield "goodput", goodput("llama-3-70b", on="32xp5.48xlarge", tokens="1T").svg()
    yield "plugs", draw_plugs_svg(list(plugs()))
    for cluster, site in ROOMS.items():
        spec = read_cluster(str(EXAMPLES / f"{cluster}.cluster.yaml"))
        design = design_facility(spec, read_site(EXAMPLES / f"{site}.site.yaml"))
        yield f"room-{cluster}", draw_racks_svg(design)
    for name, request in FABRICS.items():
        yield f"fabric-{name}", draw_fabric_svg(design_fabric(request))
    for name in LABS:
        title = read_sweep(EXAMPLES / f"{name}.sweep.yaml").name
        results = read_results([ROOT / "tests" / "data" / "lab" / f"{name}.jsonl"])
        yield f"lab-{name}", draw_scaling(results.select(Measurement), title)
    yield "simulate-policies", policies_picture()
    yield "policies-goals", goals_picture()


def policies_picture() -> str:
    """Draw workload 6 of the Pollux paper under several policies; min-time also with adaptive batch sizes."""
    file = EXAMPLES / "traces" / "pollux" / "workload-6.csv"
    users, adaptive = read_trace(file), read_trace(file, batch="adaptive")
    pool = Pool.uniform(16, 4)
    outcomes = {"min-time, adaptive batch": simulate(adaptive, get_policy("min-time"), pool)}
    outcomes |= {name: simulate(users, get_policy(name), pool) for name in POLICIES}
    lines = [
        CompletionLine(name, tuple(outcome.completion_seconds.tolist()))
        for name, outcome in outcomes.items()
    ]
    basis = "160 jobs of six kinds in 8 hours on 64 T4, workload 6 of the Pollux paper; the legend shows mean times"
    return draw_completion_svg(lines, "Job completion time by policy", basis)


def goals_picture() -> str:
    """Draw how well each policy meets two goals for the same jobs with deadlines."""
    pool = Pool.uniform(16, 4)
    file = EXAMPLES / "traces" / "pollux" / "workload-6.csv"
    trace = read_trace(file).add_deadlines(1, 3, pool)
    points = []
    for name in GOALS:
        outcome = simulate(trace, get_policy(name), pool)
        met = outcome.deadlines_met / outcome.deadlines
        mean = float(outcome.completion_seconds.mean())
        points.append(GoalPoint(name, mean, met, highlighted=name in STRATEGIES))
    basis = "160 jobs on 64 T4, workload 6 of the Pollux paper; each deadline is 1 to 3 times the job's time alone"
    return draw_goals_svg(points, "Two goals: short completion times and met deadlines", basis)


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
