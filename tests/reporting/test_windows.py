"""Reading reports from files and logs, to which a job can write anything."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import UserMistake
from gpuyard.reporting.reporter import MARKER
from gpuyard.reporting.windows import StepsFile, parse_window, read_log

GOOD: dict[str, Any] = {"steps": 10, "samples": 640, "seconds": 2.0}


def line(**changes: Any) -> str:
    return MARKER + json.dumps({**GOOD, **changes})


def test_three_numbers_are_enough_for_a_report() -> None:
    window = parse_window(line())
    assert window is not None
    assert window.step_seconds == 0.2
    assert window.samples_per_second == 320
    assert (window.gpus, window.nodes, window.warmup) == (1, 1, False)


def test_a_launcher_may_write_a_prefix() -> None:
    assert parse_window("[rank0]: " + line() + "\r\n") == parse_window(line())


@pytest.mark.parametrize(
    "text",
    [
        "loss 2.3",
        MARKER,
        MARKER + "[]",
        MARKER + json.dumps(GOOD)[:-1],
        MARKER + '{"steps": 10, "samples": 640}',
        line(steps=0),
        line(steps=2.5),
        line(steps=True),
        line(steps="10"),
        line(seconds=0),
        line(seconds=-1),
        line(seconds=5e-324),
        line(seconds=float("nan")),
        line(seconds=1e300),
        line(samples=10**400),
        line(step_seconds=0),
        line(gpus=0),
        line(gpus=10**15),
        line(gpus=10**8),
        line(nodes=10**8),
        line(workers=10**8),
        line(at=1e12),
        line(start=["a"]),
        line(job="x" * 30_000),
        MARKER + "[" * 15_000,
    ],
)
def test_invalid_reports_are_skipped(text: str) -> None:
    assert parse_window(text) is None


def test_text_is_shortened_and_stripped_of_control_characters() -> None:
    window = parse_window(
        line(job="\x1b[2Ja" * 100, testbed={"host": "b\x07", "gpus": ["c\n"] * 999})
    )
    assert window is not None
    assert window.job.isprintable()
    assert len(window.job) <= 200
    assert window.testbed is not None
    assert window.testbed["host"] == "b"
    assert window.testbed["cpu_model"] == "unknown"
    assert window.testbed["gpus"] == ("c",) * 64


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from([*GOOD, "gpus", "at", "loss", "testbed"]), _ANY))
def test_any_json_is_parsed_or_skipped(changes: dict[str, Any]) -> None:
    text = json.dumps({**GOOD, **changes})
    window = parse_window(MARKER + text)
    assert window is None or window.samples_per_second >= 0


def test_an_incomplete_line_is_read_the_next_time(tmp_path: Path) -> None:
    file = StepsFile(tmp_path / "steps")
    assert file.read() == []
    text = line(steps=1) + "\n" + line(steps=2)
    file.path.write_text(text)
    assert [window.steps for window in file.read()] == [1]
    with file.path.open("a") as more:
        more.write("\n" + line(steps=3) + "\n")
    assert [window.steps for window in file.read()] == [2, 3]


def test_an_overlong_line_is_skipped(tmp_path: Path) -> None:
    file = StepsFile(tmp_path / "steps")
    file.path.write_bytes(b"x" * 50_000)
    assert file.read() == []
    with file.path.open("a") as more:
        more.write("\n" + line() + "\n")
    assert len(file.read()) == 1


def test_links_pipes_and_directories_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(line() + "\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        assert StepsFile(tmp_path / name).read() == []


def test_other_output_in_a_log_is_ignored(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(
        b"epoch 1\n"
        + b"\xff" * 100_000
        + b"\n"
        + line().encode()
        + b"\n"
        + line(steps=5).encode()
        + b"\n"
    )
    assert [window.steps for window in read_log(log)] == [10, 5]


def test_a_missing_log_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"nowhere.* not found"):
        read_log(tmp_path / "nowhere")
    with pytest.raises(UserMistake, match=rf"{tmp_path}.* directory"):
        read_log(tmp_path)
