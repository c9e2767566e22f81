"""Tests of terminal output: it fits the width, keeps numbers whole, and prints names literally."""

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from gpuyard.report.answer import (
    Answer,
    Bullets,
    Card,
    Column,
    DefinitionList,
    Drawing,
    Part,
    RendererOnly,
    Section,
    Sentence,
    StyledText,
    Table,
    Text,
)
from gpuyard.report.answers.predict import choke_cell
from gpuyard.report.answers.results import content_answer
from gpuyard.report.terminal import print_answer
from tests.report.builder import create_platforms

WIDE_TABLE = Table(
    "resnet50 on 4 machines",
    ["GPUs", Column("nodes", 3), "samples/s", Column("90% interval", 1), Column("caveat", 2)],
    [["8", "1", "12,345.6", "11,000 – 13,000", "an update sees four times the samples"]],
    note="Estimated.",
)


@pytest.fixture(autouse=True)
def color_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a color terminal, independent of the environment of the tests."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def render(*parts: Part, width: int = 80, wide: bool = False, color: bool = False) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=color, markup=False)
    print_answer(Answer(parts), out=out, wide=wide)
    return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_optional_columns_are_dropped_in_order_if_the_width_is_short() -> None:
    narrow = render(WIDE_TABLE, width=62)
    assert "nodes" not in narrow.splitlines()[2]
    assert "12,345.6" in narrow
    assert "11,000 – 13,000" in narrow
    assert "Not shown at this width: nodes (--wide)." in narrow
    assert max(map(len, narrow.splitlines())) <= 62
    narrower = render(WIDE_TABLE, width=42)
    assert "Not shown at this width: nodes, caveat (--wide)." in " ".join(narrower.split())


def test_optional_columns_are_dropped_before_prose_is_squeezed() -> None:
    prose = "a sentence that explains at some length what you would have to be careful about"
    droppable = [Column("first", 1), Column("second", 2), Column("third", 3)]
    columns: list[Column | str] = ["change", "caveat", *droppable]
    table = Table("", columns, [[prose, prose, "1,234.5", "1,234.5", "1,234.5"]])
    text = render(table, width=70)
    assert "Not shown at this width: third (--wide)." in text
    widths = [len(cell) for cell in text.splitlines()[0].split("┳")]
    assert min(widths[:2]) >= 20
    # if nothing can be dropped, prose shrinks and numbers don't
    kept = render(Table("", ["change", "caveat", "a", "b", "c"], table.rows), width=70)
    assert kept.count("1,234.5") == 3 and max(map(len, kept.splitlines())) <= 70


def test_numbers_dates_and_names_of_rows_are_never_broken() -> None:
    inlet = "iec-60309-3p-n-e-63a, iec-60309-3p-e-60a"
    rows = [[f"raritan-px-{n}-with-a-long-name", inlet, "1,234", "11.36 (95%)", "2026-08-22"]
            for n in range(3)]  # fmt: skip
    for width in range(60, 100):
        text = render(Table("", ["id", "inlet", "C13", "rate", "date"], rows), width=width)
        assert text.count("-with-a-long-name") == 3
        for figure in ("1,234", "11.36 (95%)", "2026-08-22"):
            assert text.count(figure) in (0, 3)
        assert max(map(len, text.splitlines())) <= width
    # an id that does not fit is broken after a hyphen
    text = render(Table("", ["a", "b"], [["1", inlet]]), width=27)
    assert "│ iec-60309-3p-n-e- " in text and "│ iec-60309-3p-e-60a " in text


def test_a_column_with_warnings_is_dropped_last() -> None:
    row: list[StyledText] = [
        "204ef2d343b9",
        *["1,234,567.8"] * 5,
        Text("windows differ", "caution"),
    ]
    text = render(Table("", ["id", "a", "b", "c", "d", "e", "doubt"], [row]), width=80)
    assert "windows" in text and "Not shown at this width: d, e (--wide)." in text


def test_headers_fold_before_prose_is_squeezed() -> None:
    rows = [["a machine with eight GPUs and a network", "$1", "$2"]]
    columns = ["what", "cost of a finished run", "total over the horizon"]
    text = render(Table("", columns, rows), width=64)
    assert "a machine with eight GPUs and a network" in text


def test_wide_shows_every_column_on_one_line_each() -> None:
    wide = render(WIDE_TABLE, width=40, wide=True)
    (row,) = [line for line in wide.splitlines() if "12,345.6" in line]
    assert "an update sees four times the samples" in row


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    sentence = "It would take " + "really " * 8 + "10 Gbit/s to do that."
    for width in range(40, 90):
        assert "10 Gbit/s" in render(Sentence(sentence), width=width)


def test_markup_in_a_name_is_printed_literally() -> None:
    name = "resnet [fp16] [/v2] :boom:"
    everything = render(
        Sentence(name),
        Bullets([name]),
        DefinitionList([(name, name)], title=name),
        Table(name, [name], [[name]], note=name),
        Drawing(lines=lambda _: [name], caption=name),
        Card(name, [Sentence(name)], headline=name, facts=name),
        Section(name, [Sentence(name)]),
        width=200,
    )
    assert everything.count(name) == 17


@given(st.text(st.characters(max_codepoint=0x2100), min_size=1, max_size=20))
def test_names_cannot_send_control_characters(name: str) -> None:
    parts = (
        Sentence(name),
        Bullets([Text(name, "bad")]),
        DefinitionList([(name, name)]),
        Table(name, [name], [[name]], note=name),
        Drawing(lines=lambda _: [name], caption=name),
        Card(name, [Sentence(name)], headline=name),
    )
    text = render(*parts, width=100)
    control_characters = {
        c for c in text if c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0)
    } - {"\t"}
    assert not control_characters


def test_only_terminals_get_colors_and_only_for_tones() -> None:
    table = Table("", ["choke"], [[Text("does not fit", "bad")], ["gpu"]])
    assert "\x1b[" not in render(table)
    colored = render(table, color=True)
    assert "\x1b[1;31mdoes not fit" in colored


def test_a_choke_that_more_gpus_do_not_remedy_is_highlighted() -> None:
    here, _, _ = create_platforms(1.0)
    prediction = here.prediction(4, 50, 46e6)
    assert choke_cell(replace(prediction, choke="network")) == Text("network", "caution")
    assert choke_cell(replace(prediction, choke="gpu")) == "gpu"


def test_a_slow_link_is_highlighted() -> None:
    table = Table("", ["link", "verdict"], [["a", "slow"], ["b", "as expected"]])
    colored = render(*content_answer([table], None).parts, color=True)
    assert "\x1b[1;31mslow" in colored and "\x1b[1;31mas expected" not in colored
    assert "\x1b[" not in render(*content_answer([table], None).parts)


def test_parts_for_the_page_are_not_printed() -> None:
    text = render(
        RendererOnly("page", [Sentence("chart")]), RendererOnly("terminal", [Sentence("table")])
    )
    assert text == "table\n"
