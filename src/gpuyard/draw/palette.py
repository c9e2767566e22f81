"""Colors for every picture.

Drawings have a white background, which gpuyard's own pages invert in the dark (report.css). Charts follow the
reader's color scheme.
"""

BACKGROUND, FRAME = "#ffffff", "#d0d7de"
INK, MUTED = "#1f2937", "#57606a"

Paint = tuple[str, str]
"""Fill and outline color of a box."""
GREEN: Paint = ("#f4f9ec", "#4d7c0f")
BLUE: Paint = ("#e4effb", "#2c6cb0")
PURPLE: Paint = ("#f2ecfb", "#7c4dbd")
ORANGE: Paint = ("#fdf1e3", "#b4661a")
TEAL: Paint = ("#e6f6f4", "#0f766e")
GRAY: Paint = ("#eef1f5", "#475569")

# Okabe and Ito, "Color Universal Design" (2008): readers with any color vision can tell these apart. Black and
# yellow are left out and the blue is lighter, so that every color stands out on white paper and on a dark screen.
COLORS = ("#1a80c4", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
# More colors, for a white background only: the original Okabe-Ito blue and four of Paul Tol's muted scheme.
MANY_COLORS = ("#0072b2", *COLORS[1:], "#332288", "#882255", "#117733", "#999933")
NEUTRAL, MISSED = "#8a8f98", "#b3261e"
CHART_STYLE = """
text{font:12px system-ui,sans-serif;fill:#16191d}
.title{font-weight:600;font-size:15px}.panel{font-weight:600;font-size:13px}.words{font-size:13px}
.soft{fill:#565d67}.page{fill:#fff}.grid{stroke:#d9dde3}.ideal{stroke:#565d67;stroke-dasharray:6 4}
.leader{stroke:#8a8f98;stroke-width:.7}.line{fill:none;stroke-width:2}
.compute{fill:#0b7a4b}.window{fill:#8fb8a5}.exchange{fill:#005a9c}.wait{fill:#b3261e}
.ready{stroke:#005a9c;stroke-width:2;stroke-dasharray:2 4}
@media (prefers-color-scheme:dark){text{fill:#e8eaed}.soft{fill:#a5adb8}.page{fill:#14171b}
.grid{stroke:#363c45}.ideal{stroke:#a5adb8}.compute{fill:#62cf9b}.window{fill:#3f6b57}.exchange{fill:#7cb8ee}
.wait{fill:#ff9389}.ready{stroke:#7cb8ee}}
"""
