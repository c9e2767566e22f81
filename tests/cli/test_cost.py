"""`gpuyard cost` and `gpuyard prices` as people run them."""

import datetime
import json
from pathlib import Path

import pytest

from tests.conftest import Cli
from tests.economics.test_demand import SACCT

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("rent", "buy", "colocation", "months"),
    [
        ("$160308/year", "$109008", "$0/year", 8.2),
        ("$160308/year", "$109008", "$15000/year", 9.0),
        ("$139371/year", "$28389", "$0/year", 2.4),
        ("$139371/year", "$28389", "$15000/year", 2.7),
        ("$69729/year", "$12472", "$0/year", 2.1),
    ],
)
def test_founding_comparisons(
    cli: Cli, rent: str, buy: str, colocation: str, months: float
) -> None:
    done = cli("cost", "--rent", rent, "--buy", buy, "--colocation", colocation, "--json")
    assert json.loads(done.stdout)["break_even_months"] == pytest.approx(months, abs=0.05)


def test_the_whole_answer_and_its_page(cli: Cli, tmp_path: Path) -> None:
    page = tmp_path / "cost.html"
    arguments = [
        "cost", "--rent", "aws/p4d.24xlarge", "--buy", "$128000", "--utilization", "50%",
        "--power", "6 kW", "--idle-power", "2 kW", "--tariff", "$0.12/kWh", "--pue", "1.5",
        "--colocation", "$184/kW/month", "--horizon", "4 years", "--discount-rate", "5%",
        "--financed", "50%", "--interest", "6%", "--value-kept", "60%", "--gpus", "8",
        "--failure", "$500", "--monte-carlo", "1000", "--seed", "3",
    ]  # fmt: skip
    answer = json.loads(cli(*arguments, "--json").stdout)
    assert answer["price_date"] == "2026-08-22"
    assert len(answer["rented_cash_by_month_usd"]) == 49
    assert answer["monte_carlo"]["draws"] == 1000
    assert {bar["name"] for bar in answer["tornado"]} >= {"rent_usd_per_hour", "pue", "watts"}
    done = cli(*arguments, "--tornado", "--html", str(page))
    assert "2026-08-22" in done.stdout
    assert "draws (seed 3)" in done.stdout
    assert "chart-tornado" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("rest", "total"), [(["pay"], 480_924), (["resell", "--resale", "50%"], 320_616)]
)
def test_the_rest_of_a_term_counts_in_the_total(cli: Cli, rest: list[str], total: float) -> None:
    options = [
        "--rent",
        "$160308/year",
        "--buy",
        "$109008",
        "--term",
        "3 years",
        "--horizon",
        "1 year",
    ]
    answer = json.loads(cli("cost", *options, "--rest", *rest, "--json").stdout)
    assert answer["rented_usd"] == pytest.approx(total)
    assert answer["rest_of_term_usd"] == pytest.approx(total - 160_308)
    assert answer["break_even_months"] == pytest.approx(8.16, abs=0.01)


def test_a_range_of_its_own(cli: Cli) -> None:
    done = cli(
        "cost", "--rent", "$1.50/h", "--buy", "$8000", "--vary", "hardware_usd=1..8000", "--json"
    )
    bars = {bar["name"]: bar for bar in json.loads(done.stdout)["tornado"]}
    assert bars["hardware_usd"]["low"] == 1
    assert bars["hardware_usd"]["saving_at_low_usd"] == pytest.approx(8999)


def test_the_example_of_offers(cli: Cli, tmp_path: Path) -> None:
    file = str(ROOT / "examples" / "v100.offers.yaml")
    page = tmp_path / "offers.html"
    answer = json.loads(cli("cost", "compare", file, "--json", "--html", str(page)).stdout)
    # those of the file: at this steady load the best mix owns all, and that offer is there already
    assert len(answer["offers"]) == 5
    assert "hybrid" not in [offer["kind"] for offer in answer["offers"]]
    assert all(offer["price_date"] for offer in answer["offers"])
    assert "chart-cash" in page.read_text(encoding="utf-8")


def test_hybrid_from_slurm(cli: Cli, tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.txt"
    jobs.write_text(SACCT)
    page = tmp_path / "hybrid.html"
    arguments = ["--rent", "$1.50/h", "--buy", "$8000", "--html", str(page), "--json"]
    answer = json.loads(cli("cost", "hybrid", "--sacct", str(jobs), *arguments).stdout)
    assert answer["demand"]["gpu_hours"] == pytest.approx(11)
    # $8,000 over three years is $0.30 per hour, a fifth of the rent. The hours need 4, 5.5, and 1.5 GPUs;
    # a sixth would be half idle in one of three
    assert answer["best"]["own_gpus"] == 5
    assert answer["best"]["usd_per_year"] <= answer["own_all"]["usd_per_year"]
    assert {wrong["demand_factor"] for wrong in answer["if_wrong"]} == {0.7, 1.3}


def test_hybrid_with_reserved_gpus(cli: Cli) -> None:
    pytest.importorskip("scipy")
    done = cli(
        "cost", "hybrid", "--load", "working-hours", "--gpus", "16", "--rent", "$1.50/h",
        "--buy", "$20000", "--reserved", "$4000/year", "--json",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["with_reserved"]["usd_per_year"] <= answer["best"]["usd_per_year"] + 1e-6


def test_growth(cli: Cli, tmp_path: Path) -> None:
    done = cli(
        "cost", "growth", "--researchers", "12", "--hires-per-year", "4", "--gpu-hours", "300", "--rent",
        "$1.50/h", "--buy", "$28389", "--gpus-per-node", "8", "--running", "$6000/year", "--json",
        "--html", str(tmp_path / "growth.html"),
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert [purchase["number"] for purchase in answer["purchases"]] == [1, 2]
    assert answer["total_usd"] < answer["rent_all_usd"]


def test_growth_reports_that_nothing_is_worth_buying(cli: Cli) -> None:
    options = (
        "cost", "growth", "--researchers", "10", "--gpu-hours", "100", "--rent", "$1/h",
        "--buy", "$36000", "--gpus-per-node", "4",
    )  # fmt: skip
    shown = cli(*options).stdout
    assert shown.startswith("Buy no machine: renting costs no more.")
    assert "which month" not in shown
    cheap = (*options[:-3], "$9000", *options[-2:], "--budget", "$100/year")
    assert cli(*cheap).stdout.startswith("Buy no machine: the budget is too small.")


def test_the_example_of_a_horizon_is_in_years(cli: Cli) -> None:
    done = cli("cost", "--rent", "$1/h", "--buy", "$1000", "--horizon", "long", status=2)
    assert "write it like '3 years'" in done.stderr


def test_invoice(cli: Cli) -> None:
    done = cli(
        "cost", "invoice", "0.67,1.28,0.75,0.97,1.31,0.86", "--rent", "$1.50/h",
        "--billed", "1.01,1.92,1.12,1.45,1.96,1.30", "--json",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    for line, printed in zip(answer["lines"], [1.01, 1.92, 1.12, 1.45, 1.96, 1.30], strict=True):
        assert line["usd"] == pytest.approx(printed, abs=0.0101)
    assert answer["fitting_increments"] == ["second"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give --rent and --buy"),
        (["--rent", "$1/h", "--buy", "$1", "--hours-per-year", "-5"], "8,784, got -5"),
        (["--rent", "$1/h", "--buy", "$1", "--utilization", "130%"], "between 0% and 100%"),
        (
            ["--rent", "$9/year", "--buy", "$1", "--horizon", "6 months"],
            "'resell'",
        ),
        (["--rent", "$9/year", "--buy", "$1", "--term", "5 years"], "'resell'"),
        (["--rent", "$9/year", "--buy", "$1", "--rest", "sell"], "'resell'"),
        (["--rent", "$1/h", "--buy", "$1", "--vary", "rent=1..2"], "no input is called 'rent'"),
        (["--rent", "$1/h", "--buy", "$1", "--json", "--vary", "pue=2"], "pue=1.0..1.8"),
        (["--rent", "aws/p4d.24xl", "--buy", "$1"], "did you mean 'aws/p4d.24xlarge'"),
        (["--rent", "$1/h", "--buy", "$1", "--colocation", "$5"], "'$184/kW/month'"),
        (["--rent", "$1/h", "--buy", "$1", "--price-date", "soon"], "like 2026-01-31"),
        (["compare", "none.offers.yaml"], "none.offers.yaml: file not found"),
        (
            ["hybrid", "--rent", "$1/h", "--buy", "$1"],
            "one of --demand, --sacct, --usage",
        ),
        (
            ["hybrid", "--rent", "$1/h", "--buy", "$1", "--demand", "no.csv"],
            "no.csv: file not found",
        ),
        (["invoice", "0.5,x", "--rent", "$1/h"], "got 'x'"),
        (["invoice", "1e300", "--rent", "$1/h"], "got '1e300'"),
        (["invoice", "-1", "--rent", "$1/h"], "No such option"),
        (["invoice", "1", "--rent", "$1/h", "--increment", "minutes"], "did you mean 'minute'"),
    ],
)
def test_a_mistake_names_the_value_and_the_fix(
    cli: Cli, arguments: list[str], message: str
) -> None:
    done = cli("cost", *arguments, status=2)
    assert message in done.stderr
    assert not done.stdout


def test_prices_are_updated_and_reset(cli: Cli, tmp_path: Path) -> None:
    shipped = (ROOT / "src/gpuyard/catalog/data/prices.csv").read_text(encoding="utf-8")
    newer = tmp_path / "newer.csv"
    rows = shipped.splitlines()
    row = next(line for line in rows if line.startswith("aws/p4d.24xlarge,"))
    cheaper = row.replace("21.95764", "19.5").replace("2026-08-22", str(datetime.date.today()))
    assert cheaper != row
    newer.write_text("\n".join(cheaper if line == row else line for line in rows) + "\n")
    home = {"GPUYARD_HOME": str(tmp_path / "home")}
    update_prices = ["prices", "update", "--from", str(newer)]
    update = json.loads(cli(*update_prices, "--dry-run", "--json", environment=home).stdout)
    assert [change["id"] for change in update["changed"]] == ["aws/p4d.24xlarge"]
    assert not (tmp_path / "home" / "prices.csv").exists()
    assert "1 changed" in cli(*update_prices, environment=home).stdout
    shown = json.loads(
        cli("catalog", "prices", "aws/p4d.24xlarge", "--json", environment=home).stdout
    )
    assert (shown["usd_per_hour"], shown["date"]) == (19.5, str(datetime.date.today()))
    old = tmp_path / "old.csv"
    old.write_text(shipped)
    refused = cli("prices", "update", "--from", str(old), environment=home, status=2)
    assert "add --older" in refused.stderr
    undone = json.loads(cli("prices", "reset", "--json", environment=home).stdout)
    assert undone["removed"] == str(tmp_path / "home" / "prices.csv")
    cli(*update_prices, environment=home)
    assert "in use again" in cli("prices", "reset", environment=home).stdout
    assert "Nothing to undo" in cli("prices", "reset", environment=home).stdout


def test_electricity_is_priced_by_country(cli: Cli) -> None:
    machine = ["cost", "--rent", "$1.50/h", "--buy", "$8000", "--power", "1 kW"]
    assert "give --tariff or --country" in cli(*machine).stdout
    assert "give --power" in cli(*machine[:-2]).stdout
    assert "Electricity: $0.3162/kWh, United Kingdom" in cli(*machine, "--country", "UK").stdout
    german = cli(*machine, "--country", "de").stdout
    assert "Electricity: $0.2571/kWh, Germany" in " ".join(german.split())
    assert cli(*machine, "--country", "germany").stdout == german
    both = cli(*machine, "--country", "DE", "--tariff", "$0.1/kWh", status=2)
    assert "--tariff or --country, not both" in both.stderr
    unknown = cli(*machine, "--country", "AQ", status=2)
    assert "country" in unknown.stderr
    assert "'AQ'" in unknown.stderr


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        (
            "--speed-lead",
            "30",
            "'30' is not a share: must be between 0% and 100%; did you mean '30%'?",
        ),
        (
            "--rent",
            "€1.50/h",
            "'€1.50/h' is not a rental price in dollars; write it like '$1.50/h'",
        ),
    ],
)
def test_the_intended_value_is_suggested(cli: Cli, option: str, value: str, message: str) -> None:
    options = {"--rent": "$1.50/h", "--buy": "$8000", option: value}
    done = cli("cost", *(word for pair in options.items() for word in pair), status=2)
    assert message in " ".join(done.stderr.split())
