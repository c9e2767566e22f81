"""Tests of the chart that compares policies by two goals."""

import re
from itertools import pairwise
from xml.etree import ElementTree

from gpuyard.draw.policies import GoalPoint, draw_goals_svg


def test_shorter_times_are_further_left_and_more_met_deadlines_further_up() -> None:
    points = [
        GoalPoint("soon", 600.0, 0.5, highlighted=True),
        GoalPoint("in time", 1200.0, 0.9, highlighted=True),
        GoalPoint("<neither>", 7200.0, 0.1),
    ]
    svg = draw_goals_svg(points, "Goals", "invented")
    ElementTree.fromstring(svg)  # noqa: S314 - our own
    dots = [
        (float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    ]
    (soon_x, soon_y), (in_time_x, in_time_y), (neither_x, neither_y) = dots
    assert soon_x < in_time_x < neither_x
    assert in_time_y < soon_y < neither_y
    assert "in time: 20 min, 90%" in svg
    assert "&lt;neither&gt;: 2 h, 10%" in svg


def test_labels_of_close_points_do_not_overlap() -> None:
    points = [GoalPoint(f"policy-{n}", 600.0 + n, 0.9 + n / 1000) for n in range(4)]
    svg = draw_goals_svg(points, "Goals", "invented")
    rows = sorted(float(y) for y in re.findall(r'class="words" x="[\d.]+" y="([\d.]+)"', svg))
    assert all(later - earlier >= 15.9 for earlier, later in pairwise(rows))
