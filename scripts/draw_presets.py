"""Draws the documentation's pictures of machines: draw_presets.py [--check].

With --check nothing is written; the exit status is 1 where a picture is missing or no longer current.
"""

import sys
from pathlib import Path

from gpuyard.catalog import gpus, machines
from gpuyard.draw.topology import topology_svg
from gpuyard.files import write_text
from gpuyard.hardware.presets import PRESETS, build_preset

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MACHINES = ("dgx-1-p100", "dgx-2")  # presets with other GPUs than their usual ones


def drawings() -> dict[str, str]:
    """File name → SVG."""
    drawn = {
        name: build_preset(name, gpus().get(preset.usual_gpu), preset.usual_gpus)
        for name, preset in PRESETS.items()
    }
    for name in MACHINES:
        machine = machines().get(name)
        drawn[name] = build_preset(machine.topology, gpus().get(machine.gpu), machine.gpus)
    return {f"topology-{name}.svg": topology_svg(graph) for name, graph in drawn.items()}


def main() -> int:
    stale = 0
    for name, svg in drawings().items():
        path = IMAGES / name
        if path.exists() and path.read_text(encoding="utf-8") == svg:
            continue
        stale += 1
        if "--check" in sys.argv[1:]:
            print(f"{path} is not current; run scripts/draw_presets.py", file=sys.stderr)
        else:
            write_text(path, svg)
            print(path)
    return 1 if stale and "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    raise SystemExit(main())
