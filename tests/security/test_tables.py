"""Tables, exports, and calibrations from strangers have size limits; exceeding one is reported in one line."""

from pathlib import Path

import pytest

from gpuyard.economics.demand import demand_from_csv, demand_from_sacct
from gpuyard.errors import UserMistake
from gpuyard.measure.reading import read_results
from gpuyard.predictor.calibration.document import calibration_from_json
from tests.conftest import Cli

_SACCT = "JobID|Start|End|AllocTRES\n1|{}|2026-01-02T00:00:00|gres/gpu={}\n"


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("time,gpus\n2026-01-01," + "1" * 140_000, ":2: longer than 10,000 characters"),
        ('time,gpus,n\n2026-01-01,1,"' + "x" * 140_000, ":2: longer than 10,000 characters"),
        ("gpus" + ",a" * 9_000_000 + "\n1\n", ":1: longer than 10,000 characters"),
        ("gpus\n" + "1\n" * 9_000_000, "1,000,000"),
        ("time,gpus\n2026-01-01,1\nNaT,2\n", ":3: 'NaT' is not a time"),
        ("time,gpus\n2026-01-01T00:00\0,1\n2026-01-02,2\n", "is not a time"),
        ("time,gpus\n2026-01-01,1\n9999999999-01-01,2\n", ":3: '9999999999-01-01' is not a time"),
    ],
    ids=lambda text: text[-20:],
)
def test_a_table_of_demand(text: str, fragment: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        demand_from_csv(text, "demand.csv")
    assert fragment in str(mistake.value)
    assert len(str(mistake.value)) < 300


@pytest.mark.parametrize(
    ("first", "second", "hours"),
    [
        ("2026-01", "2026-02", 31 * 24),
        ("2026-01-01", "2026-01-02", 24),
        ("2026-01-01T09:00Z", "2026-01-01T10:00Z", 1),
        ("2026-01-01 09:00:00+00:00", "2026-01-01 10:00:00+00:00", 1),
        ("2026-03-29T00:00+01:00", "2026-03-29T03:00+02:00", 2),
    ],
)
def test_times_as_tools_write_them(first: str, second: str, hours: float) -> None:
    demand = demand_from_csv(f"time,gpus\n{first},1\n{second},2\n", "demand.csv")
    assert demand.hours_each == hours


@pytest.mark.parametrize(
    ("start", "gpus", "fragment"),
    [
        ("2026-01-01T00:00:00", "8" * 400, ":2: expected a billion GPUs or less"),
        ("2026-01-01T00:00:00", "8" * 5_000, ":2: expected a billion GPUs or less"),
        ("2026-01-01T00:00:00", "1,gres/gpu:a=1" * 1_000_000, ":2: longer than 10,000 characters"),
        ("NaT", "8", ":2: 'NaT' is not a time like 2026-01-31T09:00:00"),
        ("9999999999999999", "8", ":2: '9999999999999999' is not a time"),
        ("1970-13-01", "8", ":2: '1970-13-01' is not a time"),
    ],
    ids=lambda text: text[:20],
)
def test_slurms_accounting(start: str, gpus: str, fragment: str) -> None:
    with pytest.raises(UserMistake) as mistake:
        demand_from_sacct(_SACCT.format(start, gpus), "sacct.txt")
    assert fragment in str(mistake.value)
    assert len(str(mistake.value)) < 300


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ('{"a":' * 10_000 + "1" + "}" * 10_000, ":1: not a measurement (recursion limit"),
        ('{"kind": ' + "9" * 5_000 + "}", ":1: not a measurement (number out of range"),
        ('{"kind": {}}', "got '{}'"),
        ('{"kind": "\\ud800"}', ":1: not a measurement (unexpected end of hex escape"),
        ('{"kind": "train", "x": [' + "1," * 600_000 + "1]}", ":1: longer than 1,000,000"),
        (
            '{"kind": "train", "windows": [' + "{}," * 300_000 + "{}]}",
            ":1: not a measurement (more than 20,000 values)",
        ),
        ("\n" * 15_000_000, "100,000"),
        ("\n" * 20_000_001, "larger than 20 MB"),
    ],
    ids=lambda text: text[:30].strip(),
)
def test_an_export_of_results(tmp_path: Path, text: str, fragment: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(UserMistake) as mistake:
        read_results([path])
    assert fragment in str(mistake.value)
    assert len(str(mistake.value).replace(str(path), "")) < 300


def test_a_calibration_that_is_too_large_is_not_read(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    path.write_text('{"hardware": [' + "1," * 9_000_000 + "1]}")
    done = cli("predict", "alexnet", "--on", "t4", "--calibration", str(path), status=2)
    assert "calibration.json: larger than 1 MB" in done.stderr


def test_a_calibration_with_many_errors_is_reported_in_one_line() -> None:
    text = '{"hardware": [' + "{}," * 300_000 + "{}]}"
    with pytest.raises(UserMistake, match=r"is not a calibration \(more than 20,000 values\)"):
        calibration_from_json(text, "calibration.json")


@pytest.mark.parametrize(
    ("hours", "billed", "fragment"),
    [
        (",".join(["0.67"] * 20_000), "1", "an invoice has at most 5,000 lines, got 20,000"),
        ("1", ",".join(["0.67"] * 20_000), "an invoice has at most 5,000 lines, got 20,000"),
        ("1e-99999999", "0", "expected numbers like 0.67,1.28, got '1e-99999999'"),
        ("1" * 5_000, "0", "expected numbers like 0.67,1.28, got '1111"),
    ],
    ids=lambda text: text[:12],
)
def test_an_invoice(cli: Cli, hours: str, billed: str, fragment: str) -> None:
    done = cli("cost", "invoice", hours, "--rent", "$1/h", "--billed", billed, status=2)
    assert fragment in done.stderr
    assert len(done.stderr) < 300
