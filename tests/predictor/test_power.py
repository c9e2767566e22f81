"""Power caps: published curves, their interval, and the commands that use them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuyard as gy
from gpuyard.api.large import LargePredictions
from gpuyard.api.plan import create_plan
from gpuyard.catalog import gpus
from gpuyard.catalog.power_caps import power_caps
from gpuyard.errors import UserMistake
from gpuyard.predictor.power import cap_power, list_caps
from tests.conftest import Cli

A100 = gpus().get("a100-pcie-80gb")


def test_a_cap_gives_the_published_speeds() -> None:
    # Perseus on A100: 250 of 300 W leave 90% to 94% of the speed
    cap = cap_power(A100, 250)
    published = [
        p.speed for p in power_caps() if p.curve.startswith("perseus-a100") and p.cap_watts == 250
    ]
    assert cap.low <= min(published)
    assert max(published) <= cap.high
    assert min(published) <= cap.speed <= 0.97
    assert cap.drawn_watts < 250 < cap.uncapped_watts < 300


def test_no_cap_and_a_cap_above_the_rated_power_change_nothing() -> None:
    for watts in (A100.board_watts, 1000.0):
        cap = cap_power(A100, watts)
        assert (cap.speed, cap.low, cap.high) == (1.0, 1.0, 1.0)


@given(st.floats(0.42, 1.0), st.floats(0.42, 1.0), st.sampled_from(gpus().ids()))
def test_less_power_is_never_faster(one: float, other: float, name: str) -> None:
    gpu = gpus().get(name)
    low, high = sorted((one, other))
    less, more = (cap_power(gpu, share * gpu.board_watts) for share in (low, high))
    assert less.speed <= more.speed + 0.02  # single points of a curve are noisy
    assert 0 < less.low <= less.speed <= less.high <= 1.1


def test_an_architecture_without_curves_has_a_wider_interval() -> None:
    known, unknown = cap_power(A100, 240), cap_power(gpus().get("h100-sxm5-80gb"), 560)
    assert unknown.high - unknown.low > known.high - known.low
    assert "Hopper" in unknown.basis


def test_a_cap_below_all_curves_is_refused() -> None:
    with pytest.raises(UserMistake, match="130 W"):
        cap_power(A100, 50)
    caps = list_caps("a100-pcie-80gb")
    assert [cap.watts for cap in caps] == sorted((cap.watts for cap in caps), reverse=True)


def test_predict_slows_compute_and_counts_energy(cli: Cli) -> None:
    command = ("predict", "resnet50", "--on", "2x4xrtx-3090@10G", "--gpus", "1,8", "--json")
    full, capped = (
        json.loads(cli(*command, *more).stdout) for more in ((), ("--power-cap", "280W"))
    )
    speed = capped["power_cap"]["speed"]
    alone, together = (
        c["samples_per_second"] / f["samples_per_second"]
        for c, f in zip(capped["predictions"], full["predictions"], strict=True)
    )
    assert alone == pytest.approx(speed, rel=1e-6)
    assert alone < together <= 1  # the exchange is as fast as before
    assert capped["predictions"][0]["samples_per_joule"] > 0
    assert "power_cap" not in full


def test_large_models_and_mistakes(cli: Cli) -> None:
    command = ("predict", "llama-3-8b", "--on", "8xa100", "--strategy", "auto", "--gpus", "8")
    row = json.loads(cli(*command, "--power-cap", "300W", "--json").stdout)["predictions"][0]
    assert row["tokens_per_joule"] == pytest.approx(
        gy.predict("llama-3-8b", on="8xa100", strategy="auto", gpus=8, power_cap=300)
        .to_dict()["predictions"][0]["tokens_per_joule"]
    )  # fmt: skip
    assert "joule" in cli(*command, "--power-cap", "300W").stdout
    assert "170 W" in cli(*command, "--power-cap", "90W", status=2).stderr


def test_other_layouts_of_a_large_model_have_the_cap_too(cli: Cli) -> None:
    """The simpler layout is as fast as if only it was allowed, and all have the cap."""
    command = ("predict", "llama-3-8b", "--on", "4xdgx-h100", "--gpus", "32")
    for cap in ("500W", "400W"):
        capped = (*command, "--power-cap", cap)
        result = gy.predict("llama-3-8b", on="4xdgx-h100", gpus=32, power_cap=cap)
        assert isinstance(result, LargePredictions)
        simpler, best = result.result.simpler, result.result.largest
        assert simpler is not None
        layout = simpler.layout
        forced = f"tp={layout.tensor},pp={layout.pipeline},cp={layout.context},zero={layout.zero}"
        (row,) = json.loads(cli(*capped, "--layout", forced, "--json").stdout)["predictions"]
        assert simpler.tokens_per_second == pytest.approx(row["tokens_per_second"])
        assert simpler.tokens_per_second < best.tokens_per_second
        explained = [a.tokens_per_second for a in result.result.pareto if a.layout == best.layout]
        assert explained == pytest.approx([best.tokens_per_second])


def test_a_refused_room_names_a_cap_that_fits(tmp_path: Path) -> None:
    room = Path("examples/machine-room.site.yaml").read_text(encoding="utf-8")
    site = tmp_path / "small.site.yaml"
    site.write_text(room.replace("cooling_power: 20 kW", "cooling_power: 7 kW"), encoding="utf-8")
    refused = gy.facility("4x4xrtx-3090@10G", site=site)
    assert not refused.fits
    cap = refused.reasons[-1].rpartition("power_cap=")[2].strip("'")
    assert gy.facility("4x4xrtx-3090@10G", site=site, power_cap=cap).to_dict()["racks"]
    higher = f"{int(cap.removesuffix('W')) + 5}W"
    assert not gy.facility("4x4xrtx-3090@10G", site=site, power_cap=higher).fits


def test_a_plan_with_a_cap_is_slower_and_draws_less() -> None:
    spec, _ = create_plan("resnet50", "$200000", researchers=2)
    search = spec.search.model_copy(update={"ways": ("buy",), "gpus": ("rtx-3090",), "nodes": (1,)})
    own = spec.model_copy(update={"search": search})
    full, capped = (gy.plan(own, power_cap=watts) for watts in (None, "280W"))
    machine = next(c for c in full.to_dict()["front"] if c["gpus"] == 4)
    slower = next(
        c for c in capped.to_dict()["front"]
        if (c["offer"], c["gpus"]) == (machine["offer"], machine["gpus"])
    )  # fmt: skip
    assert slower["run_seconds"] > machine["run_seconds"]
    assert slower["watts"] / slower["clusters"] == pytest.approx(
        machine["watts"] / machine["clusters"] - 4 * 70 * 1.58  # with the plan's PUE
    )
