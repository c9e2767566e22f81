"""Draws the documentation's pictures of rooms and plugs: draw_rooms.py [--check].

With --check nothing is written; the exit status is 1 where a picture is missing or no longer current.
"""

import sys
from pathlib import Path

from gpuyard.catalog.facility import plugs
from gpuyard.catalog.specfiles import read_cluster, read_site
from gpuyard.draw.plugs import plugs_svg
from gpuyard.draw.racks import racks_svg
from gpuyard.facility.design import design_facility
from gpuyard.files import write_text

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
ROOMS = {"workstation": "office", "rack": "machine-room", "dgx-h100": "colocation"}


def drawings() -> dict[str, str]:
    """File name → SVG."""
    drawn = {"plugs.svg": plugs_svg(list(plugs()))}
    for cluster, site in ROOMS.items():
        design = design_facility(
            read_cluster(str(ROOT / "examples" / f"{cluster}.cluster.yaml")),
            read_site(ROOT / "examples" / f"{site}.site.yaml"),
        )
        drawn[f"room-{cluster}.svg"] = racks_svg(design)
    return drawn


def main() -> int:
    check = "--check" in sys.argv[1:]
    stale = 0
    for name, svg in drawings().items():
        path = IMAGES / name
        if check:
            current = path.is_file() and path.read_text(encoding="utf-8") == svg
            stale += not current
            print(f"{name}: {'current' if current else 'run scripts/draw_rooms.py'}")
        else:
            write_text(path, svg)
            print(path.relative_to(ROOT))
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
