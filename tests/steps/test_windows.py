"""Reports are read from files and logs that a job can fill with anything."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import UserMistake
from gpuyard.steps.reporter import MARKER
from gpuyard.steps.windows import StepsFile, read_log, window_of

GOOD: dict[str, Any] = {"steps": 10, "samples": 640, "seconds": 2.0}


def line(**changed: Any) -> str:
    return MARKER + json.dumps({**GOOD, **changed})


def test_a_program_in_any_language_needs_three_numbers() -> None:
    window = window_of(line())
    assert window is not None
    assert window.step_seconds == 0.2
    assert window.samples_per_second == 320
    assert (window.gpus, window.nodes, window.warmup) == (1, 1, False)


def test_a_launcher_may_stand_before_it() -> None:
    assert window_of("[rank0]: " + line() + "\r\n") == window_of(line())


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
        line(start=["a"]),
        line(job="x" * 30_000),
        MARKER + "[" * 15_000,
    ],
)
def test_what_is_no_report_is_left_out(text: str) -> None:
    assert window_of(text) is None


def test_text_is_short_and_nothing_that_a_terminal_obeys() -> None:
    window = window_of(line(job="\x1b[2Ja" * 100, testbed={"host": "b\x07", "gpus": ["c\n"] * 999}))
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
def test_any_value_is_a_window_or_none(said: dict[str, Any]) -> None:
    text = json.dumps({**GOOD, **said})
    window = window_of(MARKER + text)
    assert window is None or window.samples_per_second >= 0


def test_a_line_that_is_not_whole_comes_with_the_next_look(tmp_path: Path) -> None:
    file = StepsFile(tmp_path / "steps")
    assert file.read() == []
    text = line(steps=1) + "\n" + line(steps=2)
    file.path.write_text(text)
    assert [window.steps for window in file.read()] == [1]
    with file.path.open("a") as more:
        more.write("\n" + line(steps=3) + "\n")
    assert [window.steps for window in file.read()] == [2, 3]


def test_a_file_of_one_endless_line_is_passed_over(tmp_path: Path) -> None:
    file = StepsFile(tmp_path / "steps")
    file.path.write_bytes(b"x" * 50_000)
    assert file.read() == []
    with file.path.open("a") as more:
        more.write("\n" + line() + "\n")
    assert len(file.read()) == 1


def test_links_pipes_and_directories_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(line() + "\n")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "."):
        assert StepsFile(tmp_path / name).read() == []


def test_a_log_is_read_with_all_that_was_printed_between(tmp_path: Path) -> None:
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


def test_a_log_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="there is no such file"):
        read_log(tmp_path / "nowhere")
    with pytest.raises(UserMistake, match="this is a directory"):
        read_log(tmp_path)
