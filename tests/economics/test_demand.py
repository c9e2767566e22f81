"""Demand from tables, from Slurm's accounting and from words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.economics.demand import (
    count_gpus,
    demand_from_csv,
    demand_from_load,
    demand_from_sacct,
)
from gpuyard.errors import UserMistake

# as `sacct -P -o JobID,Start,End,AllocTRES` prints it
SACCT = """JobID|Start|End|AllocTRES
101|2026-03-02T09:00:00|2026-03-02T11:00:00|billing=16,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1
101.batch|2026-03-02T09:00:00|2026-03-02T11:00:00|cpu=16,gres/gpu=4,mem=64G,node=1
102|2026-03-02T10:30:00|2026-03-02T11:30:00|cpu=8,gres/gpu:a100=2,gres/gpu:v100=1,node=1
103|2026-03-02T09:00:00|2026-03-02T12:00:00|cpu=64,node=2
104|Unknown|Unknown|
105|2026-03-02T11:45:00|Unknown|cpu=8,gres/gpu=8,node=1
"""


def test_jobs_become_gpus_by_the_hour() -> None:
    demand = demand_from_sacct(SACCT, "jobs.txt")
    # 9–10: 4. 10–11: 4 and half an hour of 3. 11–12: half an hour of 3.
    assert demand.gpus.tolist() == pytest.approx([4, 5.5, 1.5])
    assert demand.hours_each == 1
    assert demand.gpu_hours == pytest.approx(4 * 2 + 3 * 1)


@given(
    st.lists(
        st.tuples(st.integers(0, 500_000), st.integers(0, 200_000), st.integers(1, 64)), min_size=1
    )
)
def test_no_gpu_second_is_lost(jobs: list[tuple[int, int, int]]) -> None:
    base = np.datetime64("2026-01-01T00:00:00")
    lines = ["Start|End|AllocTRES"] + [
        f"{base + np.timedelta64(s, 's')}|{base + np.timedelta64(s + d, 's')}|gres/gpu={g}"
        for s, d, g in jobs
    ]
    demand = demand_from_sacct("\n".join(lines), "jobs.txt")
    assert demand.gpu_hours == pytest.approx(sum(d * g for _, d, g in jobs) / 3600, abs=1e-5)


def test_typed_counts_are_not_counted_twice() -> None:
    assert count_gpus("cpu=1,gres/gpu:a100=8,gres/gpu=8") == 8
    assert count_gpus("gres/gpu:a100=8,gres/gpu:v100=2") == 10
    assert count_gpus("cpu=1,gres/gpumem=80G") == 0


def test_a_table_by_the_hour_and_by_the_day() -> None:
    hourly = demand_from_csv("time,gpus\n2026-01-01T00:00,3\n2026-01-01T01:00,5\n", "d.csv")
    assert (hourly.hours_each, hourly.gpus.tolist()) == (1.0, [3, 5])
    daily = demand_from_csv("date,gpu_hours,who\n2026-01-01,48,a\n2026-01-02,24,b\n", "d.csv")
    assert (daily.hours_each, daily.gpus.tolist()) == (24.0, [2, 1])
    bare = demand_from_csv("gpus\n1\n2\n", "d.csv", hours_each=0.5)
    assert bare.gpu_hours == pytest.approx(1.5)


def test_a_million_rows() -> None:
    text = "gpus\n" + "\n".join(str(i % 97) for i in range(1_000_000))
    assert demand_from_csv(text, "d.csv", hours_each=1).gpus.size == 1_000_000


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "has: nothing"),
        ("time,cpus\n1,2\n", "'gpus' or 'gpu_hours'; this one has: time, cpus"),
        (
            "time,gpus\n2026-01-01T00:00,3\n2026-01-01T01:00,x\n",
            "d.csv:3: expected a number, got 'x'",
        ),
        ("time,gpus\n2026-01-01T00:00,3\n2026-01-01T01:00,-5\n", "row 2 has -5 GPUs"),
        ("gpus\n1\n2\n", "--row-period"),
        ("time,gpus\nyesterday,1\ntoday,2\n", "is not a time like"),
        ("time,gpus\n2026-01-02,1\n2026-01-01,2\n", "d.csv:3"),
        ("time,gpus\n", "no demand"),
        ("time,gpus\n\n", "no demand"),
        ("gpus,time\n1,2026-01-01\n2\n", ":3: '' is not a time like '2026-01-31T09:00'"),
        (
            "time,gpus\n2026-01-01,1e300\n2026-01-02,2\n",
            "row 1 has 1e\\+300 GPUs",
        ),
    ],
)
def test_a_table_that_is_wrong_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        demand_from_csv(text, "d.csv")


def test_empty_lines_between_rows_are_no_rows() -> None:
    table = "gpus,time\n\n1,2026-01-01T00:00\n\n2,2026-01-01T06:00\n"
    assert demand_from_csv(table, "d.csv").hours_each == 6


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("JobID|Start\n", "End, AllocTRES.*sacct -P"),
        ("Start|End|AllocTRES\n", "AllocTRES"),
        ("Start|End|AllocTRES\n2026-01-01T00:00:00|soon|gres/gpu=1\n", "j.txt:2: 'soon' is not"),
        ("Start|End|AllocTRES\na|b\n", "j.txt:2: .*3.*2"),
        ("Start|End|AllocTRES\n2026-01-02|2026-01-01|gres/gpu=1\n", "ends before it starts"),
    ],
)
def test_an_export_that_is_wrong_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        demand_from_sacct(text, "j.txt")


def test_patterns() -> None:
    assert set(demand_from_load("steady", 8).gpus) == {8.0}
    office = demand_from_load("working-hours", 10, base_share=0.2)
    assert (office.gpus == 10).mean() == pytest.approx(45 / 168)
    assert office.gpus.min() == 2
    spiky = demand_from_load("spiky", 100, base_share=0.0, busy_share=0.05)
    assert (spiky.gpus == 100).mean() == pytest.approx(0.05, abs=0.001)
    with pytest.raises(UserMistake, match="busy share"):
        demand_from_load("spiky", 1, busy_share=1.3)
