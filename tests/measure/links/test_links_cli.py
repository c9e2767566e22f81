"""`gpuyard bench links` for real on this machine, and how results show what it kept."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuyard import files
from gpuyard.cli.measure import bench, results
from gpuyard.cpu import usable_cores
from gpuyard.errors import UserMistake
from gpuyard.measure.links.memory import choose_core_counts
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.store import ResultsStore

ARGUMENTS = ["links", "--bytes", "4MB", "--repeats", "2"]


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_links_are_measured_kept_and_shown() -> None:
    planned = json.loads(CliRunner().invoke(bench.app, [*ARGUMENTS, "--json", "--dry-run"]).stdout)
    assert not files.results_file().exists()
    done = CliRunner().invoke(bench.app, [*ARGUMENTS, "--json"], catch_exceptions=False)
    bench_record = LinkBench.model_validate_json(done.stdout)
    assert bench_record.key == planned["key"]
    assert (
        bench_record.size_bytes,
        bench_record.repeats,
        bench_record.model,
        bench_record.findings,
    ) == (4_000_000, 2, None, ())
    measured = [link.measured for link in bench_record.links]
    assert [m.model_dump(include=set(planned["links"][0])) for m in measured] == planned["links"]
    assert [m.cores for m in measured if m.kind == "memory"] == choose_core_counts(
        len(usable_cores())
    )
    assert [m.direction for m in measured if m.kind == "loopback"] == ["one-way", "both-ways"]
    assert [m.bytes for m in measured if m.kind == "loopback"] == [4_000_000, 8_000_000]
    assert {m.bytes for m in measured if m.kind == "memory"} == {8_000_000}
    assert all(len(m.seconds) == 2 and m.bytes_per_second > 0 for m in measured)

    shown = CliRunner().invoke(results.app, ["show", bench_record.id[:6], "--json"])
    assert LinkBench.model_validate_json(shown.stdout) == bench_record
    listed = CliRunner().invoke(results.app, ["list", "--kind", "links", "--json"])
    assert [LinkBench.model_validate(row) for row in json.loads(listed.stdout)] == [bench_record]
    assert json.loads(CliRunner().invoke(results.app, ["list", "--json"]).stdout) == []


def test_the_tables_for_people() -> None:
    planned = CliRunner().invoke(bench.app, [*ARGUMENTS, "--dry-run"])
    assert "would be measured" in planned.stdout
    shown = CliRunner().invoke(bench.app, ARGUMENTS, catch_exceptions=False).stdout
    assert "memory, 1 core" in shown
    assert "loopback, both ways" in shown
    assert "no GPU" in shown


def test_slow_links_are_shown_with_what_to_try(make_bench: Callable[..., LinkBench]) -> None:
    bench_record = make_bench()
    ResultsStore(files.results_file()).add(bench_record)
    shown = (
        CliRunner().invoke(results.app, ["show", bench_record.id], catch_exceptions=False).stdout
    )
    assert "One way with peer access" in shown
    assert "12.1 of 12.0" in shown
    assert "5.8 of 12.0 slow" in shown
    assert "GPU1 → GPU0 runs at 5.8 GB/s, 48% of 12 GB/s" in shown
    assert "try: measure again" in shown
    listed = CliRunner().invoke(results.app, ["list", "--kind", "links"]).stdout
    assert bench_record.id in listed


def test_export_of_links(tmp_path: Path, make_bench: Callable[..., LinkBench]) -> None:
    ResultsStore(files.results_file()).add(make_bench())
    lines = CliRunner().invoke(results.app, ["export", "--kind", "links"]).stdout.splitlines()
    assert [LinkBench.model_validate_json(line) for line in lines] == [make_bench()]
    file = tmp_path / "links.csv"
    arguments = ["export", "--kind", "links", "--as", "csv", "--output", str(file)]
    assert "1 measurement written" in CliRunner().invoke(results.app, arguments).stderr
    assert len(file.read_text().splitlines()) == 4
    assert CliRunner().invoke(results.app, ["export"]).stdout == ""


def test_an_empty_store_suggests_how_to_run_a_bench() -> None:
    listed = CliRunner().invoke(results.app, ["list", "--kind", "links"])
    assert listed.exit_code == 0
    assert "gpuyard bench links" in listed.output


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--bytes", "1 kB"], ("--bytes", "64 kB", "1 kB")),
        (["--bytes", "900 TB"], ("--bytes", "900 TB")),
        (["--bytes", "many"], ("'many'", "size")),
        (["--repeats", "0"], ("repeats", "1000", "got 0")),
    ],
)
def test_options_out_of_range_are_a_users_mistake(
    options: list[str], parts: tuple[str, ...]
) -> None:
    with pytest.raises(UserMistake) as raised:
        CliRunner().invoke(bench.app, ["links", *options], catch_exceptions=False)
    assert all(part in str(raised.value) for part in parts)


def test_links_have_no_workload() -> None:
    for command in ("list", "export"):
        with pytest.raises(UserMistake, match="have no workload"):
            CliRunner().invoke(
                results.app,
                [command, "--kind", "links", "--workload", "x"],
                catch_exceptions=False,
            )
