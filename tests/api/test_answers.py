"""The other verbs from Python: the same documents as the command line, and rows with attributes."""

import ast
import json
import pkgutil
import re
import sys
from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from tests.conftest import Cli

EXAMPLES = Path("examples")


def test_cost(cli: Cli) -> None:
    result = gy.cost(rent="$1.50/h", buy="$8000", power="3.5 kW", country="DE", horizon="4 years")
    options = ("--power", "3.5 kW", "--country", "DE", "--horizon", "4 years")
    run = cli("cost", "--rent", "$1.50/h", "--buy", "$8000", *options, "--json")
    assert result.to_dict() == json.loads(run.stdout)
    alone = gy.cost(rent="$1.50/h", buy="$8000")
    assert alone.break_even_hours == pytest.approx(8000 / 1.5)
    assert alone.break_even_hours < result.break_even_hours
    assert f"{result.break_even_hours:,.0f} h" in str(result)
    with pytest.raises(TypeError, match="power"):
        gy.cost(rent="$1.50/h", buy="$8000", powr="3 kW")


def test_plan_of_a_file(cli: Cli) -> None:
    file = EXAMPLES / "resnet50.plan.yaml"
    result = gy.plan(file)
    assert result.to_dict() == json.loads(cli("plan", str(file), "--json").stdout)
    assert result[0].run_seconds < result[-1].run_seconds
    assert "Why:" not in str(result)
    assert "Why:" in str(result.why())


def test_the_run_to_measure_is_the_run_that_the_plan_predicts() -> None:
    result = gy.plan(budget="$60000", researchers=6, model="resnet50")
    assert result.winner.remedy == "accumulation"
    assert "gradients accumulated over 4 steps, would settle it" in " ".join(str(result).split())


def test_plan_of_a_budget_lists_what_it_assumes(cli: Cli) -> None:
    result = gy.plan(budget="$60000", researchers=6, model="resnet50")
    options = ("--budget", "$60000", "--researchers", "6", "--model", "resnet50")
    assert result.to_dict() == json.loads(cli("plan", *options, "--json").stdout)
    assert "Assumed: ImageNet" in str(result)
    assert result.goal.budget_usd == 60000
    assert "--tokens" in cli("plan", "--budget", "$9", "--model", "gpt2", status=2).stderr
    file = str(EXAMPLES / "resnet50.plan.yaml")
    assert "leave out --budget" in cli("plan", file, "--budget", "$9", status=2).stderr
    assert "gpuyard plan --budget" in cli("plan", status=2).stderr


def test_a_room_that_is_too_small_says_why(cli: Cli) -> None:
    site = str(EXAMPLES / "office.site.yaml")
    room = gy.facility("4xdgx-h100", site=site)
    assert not room.fits
    refusal = cli("facility", "4xdgx-h100", "--site", site, status=1).stderr
    assert room.reasons
    assert all(reason.partition(" (")[0] in " ".join(refusal.split()) for reason in room.reasons)
    assert room.reasons[0].split(",")[0] in str(room)
    with pytest.raises(UserMistake):
        gy.facility("4xdgx-h101", site=site)


def test_facility_and_topology(cli: Cli) -> None:
    room = gy.facility("4xdgx-h100", country="DE")
    assert room.fits
    site = ("--country", "DE")
    assert room.to_dict() == json.loads(cli("facility", "4xdgx-h100", *site, "--json").stdout)
    assert room[0].peak_watts > 0
    assert room.svg().startswith("<svg")
    machine = gy.topology("dual-root", gpu="RTX 4090")
    run = cli("topo", "--preset", "dual-root", "--gpu", "rtx-4090", "--json")
    assert machine.to_dict() == json.loads(run.stdout)


def test_catalog(cli: Cli) -> None:
    table = gy.catalog.gpus()
    assert table.to_dict() == json.loads(cli("catalog", "gpus", "--json").stdout)
    assert table.get("h100-sxm5-80gb").memory_gb == 80
    assert "<td>h100-sxm5-80gb</td>" in table._repr_html_()


def test_results(cli: Cli) -> None:
    assert gy.results.list().to_dict() == json.loads(cli("results", "list", "--json").stdout)
    with pytest.raises(UserMistake, match="nothing"):
        gy.results.list("nothing")


def test_simulate(cli: Cli) -> None:
    result = gy.simulate(EXAMPLES / "traces" / "team.csv", on="2x4", policy="fifo,min-time")
    assert [row.policy for row in result] == ["fifo", "min-time"]
    run = cli(
        "simulate", "examples/traces/team.csv", "--on", "2x4", "--policy", "fifo,min-time", "--json"
    )
    assert result.to_dict() == json.loads(run.stdout)


def test_what_needs_a_missing_package_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    result = gy.predict("resnet50", on="h100")
    for name in ("pandas", "matplotlib.pyplot", "plotly.graph_objects"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingRequirement, match="pip install pandas"):
        result.to_pandas()
    with pytest.raises(MissingRequirement, match="pip install pandas"):
        gy.catalog.gpus().to_pandas()
    with pytest.raises(MissingRequirement, match="pip install matplotlib"):
        result.plot()
    with pytest.raises(UserMistake, match="no plot"):
        gy.topology("dual-root").plot()


def test_the_public_names_are_listed_typed_and_documented() -> None:
    tree = ast.parse(Path(gy.__file__).read_text(encoding="utf-8"))
    typed = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert set(dir(gy)) == set(gy.__all__) == typed
    page = (Path(__file__).parent.parent.parent / "docs" / "python.md").read_text(encoding="utf-8")
    for name in set(gy.__all__) - {"__version__"}:
        assert getattr(gy, name).__doc__, name
        assert re.search(rf"`{name}[.`]|gy\.{name}\b", page), name


def test_no_public_name_is_replaced_by_a_package_of_the_same_name() -> None:
    packages = {module.name for module in pkgutil.iter_modules(gy.__path__)}
    assert set(gy.__all__) & packages == {"catalog"}


def test_files_are_named_by_text_or_by_path(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.csv")
    with pytest.raises(GpuyardError, match="missing"):
        gy.validate(rows=missing)
    with pytest.raises(GpuyardError, match="missing"):
        gy.run_study(missing)
    with pytest.raises(GpuyardError, match="missing"):
        gy.bench.sweep(missing)
    with pytest.raises(GpuyardError, match="missing"):
        gy.bench.storage(missing)


def test_a_rent_is_a_number_an_instance_or_a_price() -> None:
    assert gy.cost(rent=1.5, buy=8000).break_even_hours == pytest.approx(8000 / 1.5)
    named = [gy.cost(rent=name, buy=8000) for name in ("p4d.24xlarge", "aws/p4d.24xlarge")]
    assert named[0].to_dict() == named[1].to_dict()


def test_the_catalog_has_the_shapes_of_transformers() -> None:
    assert gy.catalog.transformers().get("llama-3-8b").shape.layers == 32
