"""Policies between two goals."""

import re
from itertools import pairwise
from xml.etree import ElementTree

from gpuyard.draw.policies import GoalPoint, goals_svg


def test_sooner_is_further_left_and_more_in_time_is_further_up() -> None:
    points = [
        GoalPoint("soon", 600.0, 0.5, strong=True),
        GoalPoint("in time", 1200.0, 0.9, strong=True),
        GoalPoint("<neither>", 7200.0, 0.1),
    ]
    svg = goals_svg(points, "Goals", "made up")
    ElementTree.fromstring(svg)  # noqa: S314 - our own
    places = [
        (float(x), float(y)) for x, y in re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', svg)
    ]
    (soon_x, soon_y), (in_time_x, in_time_y), (neither_x, neither_y) = places
    assert soon_x < in_time_x < neither_x
    assert in_time_y < soon_y < neither_y
    assert "in time: 20 min, 90 %" in svg
    assert "&lt;neither&gt;: 2 h, 10 %" in svg


def test_labels_of_close_points_are_apart() -> None:
    points = [GoalPoint(f"policy-{n}", 600.0 + n, 0.9 + n / 1000) for n in range(4)]
    svg = goals_svg(points, "Goals", "made up")
    rows = sorted(float(y) for y in re.findall(r'class="words" x="[\d.]+" y="([\d.]+)"', svg))
    assert all(later - earlier >= 15.9 for earlier, later in pairwise(rows))
