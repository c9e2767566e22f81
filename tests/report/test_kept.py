"""Reports in gpuyard's home: what was written as a page can be opened again, whatever else is there."""

from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.report.answer import (
    Answer,
    Bullets,
    Chart,
    Drawing,
    Part,
    Section,
    Sentence,
    Table,
    Text,
)
from gpuyard.report.answers.study.report import study_answer
from gpuyard.report.html import render_page
from gpuyard.report.kept import decode_answer, encode_answer, keep_report, list_reports, read_report
from tests.conftest import Cli
from tests.report.builder import full_study


def test_a_study_reads_back_as_the_same_page(home: Path) -> None:
    answer = study_answer(full_study())
    keep_report(answer)
    (kept,) = list_reports()
    assert (kept.title, kept.verb) == (answer.title, "study")
    assert render_page(read_report(kept.id)) == render_page(answer)


def test_what_only_a_terminal_shows_is_left_out() -> None:
    parts: list[Part] = [
        Drawing(svg="<svg/>", lines=lambda width: ["x" * width]),
        Section("s", [Table("t", ["a"], [[Text("x", "bad")]]), Bullets(["b"])], folded=True),
        Chart("c", "", {"all": {"yAxis": {"type": "value"}}}),
    ]
    decoded = decode_answer(encode_answer(Answer(parts, {"nan": float("nan")}, title="t")))
    assert decoded.parts[0] == Drawing(svg="<svg/>")
    assert decoded.parts[1].parts[0].rows == [[Text("x", "bad")]]  # type: ignore[union-attr]
    assert decoded.document == {"nan": None}


def test_a_page_of_a_command_is_kept(cli: Cli, home: Path, tmp_path: Path) -> None:
    cli("cost", "--rent", "$20/h", "--buy", "$250000", "--html", str(tmp_path / "cost.html"))
    (kept,) = list_reports()
    assert kept.verb == "cost"
    assert render_page(read_report(kept.id)) == (tmp_path / "cost.html").read_text()


def test_only_the_newest_are_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuyard.report.kept._MAX_KEPT", 3)
    for number in range(6):
        keep_report(Answer([Sentence(str(number))], title=str(number)))
    assert len(list_reports()) == 3


def test_files_that_are_no_reports_are_named_or_skipped(home: Path) -> None:
    directory = home / "reports"
    directory.mkdir(parents=True)
    (directory / "notes.json").write_text("{}")
    (directory / "0123456789ab.json").write_text("junk")
    (directory / "0123456789ac.json").write_text(
        '{"title": "", "verb": "", "meta": "", "written": ""}\n[1]'
    )
    (directory / "0123456789ad.json").write_text('{}\n{"=": "Path"}')
    assert [report.id for report in list_reports()] == ["0123456789ac"]
    for id_ in ("0123456789ab", "0123456789ac", "0123456789ad"):
        with pytest.raises(GpuyardError, match="cannot be read"):
            read_report(id_)
    for id_ in ("0123456789ae", "../tokens", ""):
        with pytest.raises(UserMistake, match="not found"):
            read_report(id_)


def test_a_home_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_HOME", "/dev/null")
    keep_report(Answer([]))
    assert list_reports() == []
