"""What a terminal shows: it fits, numbers stay whole, and nothing in a name is obeyed."""

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
    Only,
    Part,
    Section,
    Sentence,
    Table,
    Text,
    Words,
)
from gpuyard.report.answers.predict import choke_cell
from gpuyard.report.answers.results import shown_answer
from gpuyard.report.terminal import print_answer
from tests.report.builder import rigs

WIDE_TABLE = Table(
    "resnet50 on 4 machines",
    ["GPUs", Column("nodes", 3), "samples/s", Column("90 % interval", 1), Column("caveat", 2)],
    [["8", "1", "12,345.6", "11,000 – 13,000", "an update sees four times the samples"]],
    note="Estimated.",
)


@pytest.fixture(autouse=True)
def a_terminal_with_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the tests themselves are started from."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def shown(*parts: Part, width: int = 80, wide: bool = False, colour: bool = False) -> str:
    out = Console(file=io.StringIO(), width=width, force_terminal=colour, markup=False)
    print_answer(Answer(parts), out=out, wide=wide)
    return out.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_columns_are_left_out_where_the_width_is_short_the_least_wanted_first() -> None:
    narrow = shown(WIDE_TABLE, width=62)
    assert "nodes" not in narrow.splitlines()[2]
    assert "12,345.6" in narrow
    assert "11,000 – 13,000" in narrow
    assert "Not shown at this width: nodes (--wide)." in narrow
    assert max(map(len, narrow.splitlines())) <= 62
    narrower = shown(WIDE_TABLE, width=42)
    assert "Not shown at this width: nodes, caveat (--wide)." in " ".join(narrower.split())


def test_columns_are_left_out_before_words_are_squeezed() -> None:
    words = "a sentence that says in so many words what one would have to be careful about"
    droppable = [Column("first", 1), Column("second", 2), Column("third", 3)]
    columns: list[Column | str] = ["change", "caveat", *droppable]
    table = Table("", columns, [[words, words, "1,234.5", "1,234.5", "1,234.5"]])
    text = shown(table, width=70)
    assert "Not shown at this width: third (--wide)." in text
    widths = [len(cell) for cell in text.splitlines()[0].split("┳")]
    assert min(widths[:2]) >= 20
    # where nothing can be left out, words give way and numbers don't
    kept = shown(Table("", ["change", "caveat", "a", "b", "c"], table.rows), width=70)
    assert kept.count("1,234.5") == 3 and max(map(len, kept.splitlines())) <= 70


def test_numbers_dates_and_names_of_rows_are_never_broken() -> None:
    inlet = "iec-60309-3p-n-e-63a, iec-60309-3p-e-60a"
    rows = [[f"raritan-px-{n}-with-a-long-name", inlet, "1,234", "11.36 (95 %)", "2026-08-22"]
            for n in range(3)]  # fmt: skip
    for width in range(60, 100):
        text = shown(Table("", ["id", "inlet", "C13", "rate", "date"], rows), width=width)
        assert text.count("-with-a-long-name") == 3
        for figure in ("1,234", "11.36 (95 %)", "2026-08-22"):
            assert text.count(figure) in (0, 3)
        assert max(map(len, text.splitlines())) <= width
    # an id that has no room is broken where it has a hyphen, one that has room is not
    text = shown(Table("", ["a", "b"], [["1", inlet]]), width=27)
    assert "│ iec-60309-3p-n-e- " in text and "│ iec-60309-3p-e-60a " in text


def test_a_column_that_warns_is_left_out_last() -> None:
    row: list[Words] = ["204ef2d343b9", *["1,234,567.8"] * 5, Text("windows differ", "caution")]
    text = shown(Table("", ["id", "a", "b", "c", "d", "e", "doubt"], [row]), width=80)
    assert "windows" in text and "Not shown at this width: d, e (--wide)." in text


def test_heads_fold_before_words_are_squeezed() -> None:
    rows = [["a machine with eight GPUs and a network", "$1", "$2"]]
    columns = ["what", "cost of a finished run", "total over the horizon"]
    text = shown(Table("", columns, rows), width=64)
    assert "a machine with eight GPUs and a network" in text


def test_wide_shows_every_column_on_one_line_each() -> None:
    wide = shown(WIDE_TABLE, width=40, wide=True)
    (row,) = [line for line in wide.splitlines() if "12,345.6" in line]
    assert "an update sees four times the samples" in row


def test_a_number_and_its_unit_stay_on_one_line() -> None:
    sentence = "It would take " + "really " * 8 + "10 Gbit/s to do that."
    for width in range(40, 90):
        assert "10 Gbit/s" in shown(Sentence(sentence), width=width)


def test_markup_in_a_name_is_a_name() -> None:
    name = "resnet [fp16] [/v2] :boom:"
    everything = shown(
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
def test_nothing_in_a_name_reaches_the_terminal_as_a_command(name: str) -> None:
    parts = (
        Sentence(name),
        Bullets([Text(name, "bad")]),
        DefinitionList([(name, name)]),
        Table(name, [name], [[name]], note=name),
        Drawing(lines=lambda _: [name], caption=name),
        Card(name, [Sentence(name)], headline=name),
    )
    text = shown(*parts, width=100)
    obeyed = {c for c in text if c != "\n" and (ord(c) < 32 or 0x7F <= ord(c) < 0xA0)} - {"\t"}
    assert not obeyed


def test_colour_is_for_terminals_and_for_what_carries_meaning() -> None:
    table = Table("", ["choke"], [[Text("does not fit", "bad")], ["gpu"]])
    assert "\x1b[" not in shown(table)
    coloured = shown(table, colour=True)
    assert "\x1b[1;31mdoes not fit" in coloured


def test_a_choke_that_more_gpus_do_not_help_against_stands_out() -> None:
    here, _, _ = rigs(1.0)
    prediction = here.prediction(4, 50, 46e6)
    assert choke_cell(replace(prediction, choke="network")) == Text("network", "caution")
    assert choke_cell(replace(prediction, choke="gpu")) == "gpu"


def test_a_slow_link_and_a_wrong_result_stand_out() -> None:
    listing = Table("", ["link", "verdict"], [["a", "slow"], ["b", "as expected"]])
    coloured = shown(*shown_answer([listing], None).parts, colour=True)
    assert "\x1b[1;31mslow" in coloured and "\x1b[1;31mas expected" not in coloured
    assert "\x1b[" not in shown(*shown_answer([listing], None).parts)


def test_what_is_for_the_page_alone_is_not_printed() -> None:
    text = shown(Only("page", [Sentence("chart")]), Only("terminal", [Sentence("table")]))
    assert text == "table\n"
