"""Plans of the example file, and the answers when no option meets the goal."""

from pathlib import Path

import pytest

from gpuyard.catalog import models
from gpuyard.catalog.prices import chassis, gpu_prices
from gpuyard.catalog.specfiles import read_plan
from gpuyard.errors import SpecError, UserMistake
from gpuyard.planner import PlanResult, make_plan
from gpuyard.planner.explain.alternatives import HYBRID, load_common_alternatives
from gpuyard.planner.explain.assumptions import describe_reserved
from gpuyard.planner.recommendation import build_result
from gpuyard.planner.search import search
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import Acquisition
from tests.planner.builder import candidates, offer, plan, workload

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50.plan.yaml"


@pytest.fixture(scope="module")
def result() -> PlanResult:
    return make_plan(read_plan(EXAMPLE))


def test_the_example_has_a_choice_that_keeps_every_rule(result: PlanResult) -> None:
    chosen = result.winner
    assert chosen is not None
    assert chosen.way == "buy"  # data may not leave the building
    assert chosen.run_seconds <= 8 * 3600
    assert chosen.total_usd <= 250_000
    assert chosen.watts <= 20_000
    assert chosen.update_samples <= 8192
    assert chosen.usd_per_run_low <= chosen.usd_per_run <= chosen.usd_per_run_high
    assert chosen.effective_gpus == pytest.approx(chosen.gpus * chosen.scaling_efficiency)


def test_hundreds_of_thousands_are_searched_and_every_drop_has_a_counted_reason(
    result: PlanResult,
) -> None:
    assert result.candidates > 100_000
    exclusions = {e.reason: e.candidates for e in result.left_out}
    assert exclusions["data may not leave the building"] > 0
    assert exclusions["needs more memory than its GPU has"] > 0
    assert exclusions["draws more than the 20 kW of the site"] > 0
    assert result.allowed + sum(exclusions.values()) >= result.candidates
    assert 0 < result.feasible <= result.allowed < result.candidates


def test_the_front_gets_cheaper_as_it_gets_slower(result: PlanResult) -> None:
    seconds = [choice.run_seconds for choice in result.front]
    usd = [choice.usd_per_run for choice in result.front]
    assert seconds == sorted(seconds)
    assert usd == sorted(usd, reverse=True)
    assert all(choice.allowed for choice in result.front)


def test_every_well_known_alternative_is_answered(result: PlanResult) -> None:
    assert [other.name for other in result.alternatives] == [
        *(common.name for common in load_common_alternatives() if common.ways != ("keep",)), HYBRID
    ]  # fmt: skip
    sentences = {other.name: other.sentence for other in result.alternatives}
    assert "data may not leave the building" in sentences["AWS p4d.24xlarge (8 × A100) on demand"]
    assert "data may not leave" in sentences["a server with eight H100, bought and colocated"]
    assert "over the budget" in sentences["a server with eight H100, bought"]
    for other in result.alternatives:
        assert other.sentence.startswith(("Lost", "Ruled out", "Meets", "This is", "As cheap"))


def test_prices_have_dates_and_estimates_are_marked(result: PlanResult) -> None:
    for choice in (*result.front, *(other.choice for other in result.alternatives if other.choice)):
        assert choice.price_date is not None
        assert choice.price_is_estimate == ("estimate" in choice.price_source)


def test_a_machine_from_parts_is_as_old_as_its_oldest_part(result: PlanResult) -> None:
    built = [choice for choice in result.front if choice.price_is_estimate]
    assert built
    for choice in built:
        box, gpu = choice.offer.split("/")[0], choice.gpu
        dates = {chassis().get(box).date.isoformat(), gpu_prices().get(gpu).date.isoformat()}
        assert choice.price_date == min(dates)
        assert all(date in choice.price_source for date in dates)


def test_a_gpu_whose_price_the_plan_gives_has_no_date_of_the_catalog() -> None:
    spec = plan(prices={"gpus": [{"gpu": "rtx-4090", "price": "$1"}]},
                 search={"offers": ["workstation-4/4x-rtx-4090"], "ways": ["buy"], "nodes": [1]})  # fmt: skip
    result = build_result(candidates(spec), workload())
    assert result.winner is not None
    assert result.winner.price_date == chassis().get("workstation-4").date.isoformat()
    assert gpu_prices().get("rtx-4090").date.isoformat() not in result.winner.price_source


def test_a_reserved_price_that_no_list_has_is_called_assumed(result: PlanResult) -> None:
    choices = {other.name: other.choice for other in result.alternatives}
    reserved = choices["AWS p4d.24xlarge (8 × A100) reserved for three years"]
    assert reserved is not None and reserved.price_is_assumed
    assert "(price assumed)" in reserved.summary
    assert sum("% off the on-demand price" in words for words in result.assumptions) == 2
    others = [
        choice for choice in choices.values() if choice is not None and choice is not reserved
    ]
    assert not any(choice.price_is_assumed for choice in others)


def test_the_missing_amount_of_a_budget_is_shown() -> None:
    spec = plan(
        offer("a", rent="$3/h"), time_per_run="11 h", budget="$10,000",
        search={"ways": ["on-demand"]},
    )  # fmt: skip
    result = build_result(candidates(spec), workload())
    assert result.winner is None
    (budget,) = result.binding
    assert budget.constraint == "budget"
    assert budget.missed_by == pytest.approx(10_800 - 10_000)
    assert "The budget is short by $800" in result.verdict


def test_the_missing_time_is_shown() -> None:
    spec = plan(offer("a", rent="$3/h"), time_per_run="8 h", search={"ways": ["on-demand"]})
    result = build_result(candidates(spec), workload())
    assert result.winner is None
    (late,) = result.binding
    assert late.constraint == "time"
    assert late.missed_by == pytest.approx(2 * 3600)
    assert "short by 2 h" in result.verdict


def test_rules_that_leave_nothing_are_counted() -> None:
    spec = plan(
        offer("a", rent="$3/h"), policy={"data_stays": True}, search={"ways": ["on-demand"]}
    )
    result = build_result(candidates(spec), workload())
    assert result.winner is None
    assert "1 because: data may not leave the building" in result.verdict
    assert not result.front


def test_memory_filters_the_batch() -> None:
    spec = plan(offer("a", rent="$3/h"), search={"ways": ["on-demand"], "batch": [64, 4096]})
    result = build_result(candidates(spec), workload())
    assert [c.batch_per_gpu for c in result.front] == [64]
    assert result.left_out[0].candidates == 1


def test_policy_keeps_to_the_named_clouds() -> None:
    spec = read_plan(EXAMPLE).model_copy(
        update={"policy": Plan.model_fields["policy"].default.model_copy(update={"clouds": ("aws",)})}
    )  # fmt: skip
    result = make_plan(spec)
    rented = [c.rest or c for c in result.front if c.way not in ("buy", "colocate")]
    assert rented and all(c.offer.startswith("aws/") for c in rented)


def test_a_quote_replaces_the_catalog() -> None:
    text = {"servers": [{"machine": "dgx-h100", "price": "$1"}]}
    spec = plan(prices=text, search={"offers": ["dgx-h100"], "ways": ["buy"], "nodes": [1]})
    result = build_result(candidates(spec), workload())
    assert result.winner is not None
    assert result.winner.price_source == "the plan"
    assert result.winner.price_date is None


def test_a_workload_without_a_dataset_is_refused() -> None:
    spec = plan(offer("a", rent="$3/h")).model_copy(update={"workload": "resnet50"})
    with pytest.raises(UserMistake, match="dataset"):
        make_plan(spec)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"ways": ["buy"]}, "can be acquired by 'search.ways'"),
        ({"gpus": ["h100-sxm5-80gb"]}, "'search.gpus'"),
        ({"nodes": [4]}, "can be acquired"),
    ],
)
def test_an_empty_search_is_a_mistake(changes: dict[str, list[str]], sentence: str) -> None:
    with pytest.raises(UserMistake, match=sentence):
        candidates(plan(offer("a", rent="$3/h"), search=changes))


def test_a_gpu_that_lacks_the_precision_is_named() -> None:
    other = offer("a", rent="$3/h") | {"gpu": "tpu-v4"}
    with pytest.raises(UserMistake, match="fp16 on tpu-v4"):
        candidates(plan(other, search={"gpus": ["tpu-v4"]}))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("search: {offers: [aws/p4d.24xlarg]}", "did you mean 'aws/p4d.24xlarge'"),
        ("policy: {clouds: [awss]}", ":4: policy.clouds[0]: no cloud is called 'awss'"),
        (
            "search: {ways: [reserved-3-years]}\nhorizon: 1 year",
            "longer than the horizon of 1 year;",
        ),
        ("owning: {busy_at_most: 130%}", ":4: owning.busy_at_most: '130%' is not a share"),
        ("site: {power: -1 kW}", "zero or more"),
        ("site: room", ":4: site: 'room' is not a site file"),
        ("site: [room]", "site: expected keys with values like {key: value}, got a list"),
        ("search: {nodes: []}", ":4: search.nodes: must have at least 1 item"),
        ("search: {ways: [hybrid, buy]}", ":4: search: hybrid combines owning and renting"),
        ("people: {researchers: many}", "researchers: expected a whole number, got 'many'"),
        ("offers: [{name: a, gpu: t4}]", "an offer needs a price"),
        ("budgt: $5", ":4: budgt: no key is called 'budgt'; did you mean 'budget'?"),
        ("offers: [{name: a, gpu: t4, buy: $1}, {name: a, gpu: t4, buy: $1}]", "two offers"),
    ],
)
def test_spec_errors_name_file_line_and_key(tmp_path: Path, line: str, sentence: str) -> None:
    file = tmp_path / "x.plan.yaml"
    file.write_text(f"name: x\nworkload: resnet50\nruns_per_month: 3\n{line}\n", encoding="utf-8")
    with pytest.raises(SpecError) as error:
        read_plan(file)
    assert sentence in str(error.value)
    assert str(file) in str(error.value)


@pytest.mark.parametrize(
    ("years", "way", "words"),
    [
        (1.0, "reserved-3-years", "is left out: its term is longer than the horizon"),
        (1.5, "reserved-1-year", "Its last term runs past the horizon and is paid to its end"),
        (2.0, "reserved-1-year", "% off the on-demand price"),
    ],
)
def test_a_term_that_does_not_fit_the_horizon_is_mentioned(
    years: float, way: Acquisition, words: str
) -> None:
    spec = plan(horizon=f"{years * 12:g} months")
    assert words in describe_reserved(spec, way)


def test_a_term_that_fits_needs_no_remark() -> None:
    assert "past the horizon" not in describe_reserved(plan(horizon="2 years"), "reserved-1-year")


def test_precision_is_searched_and_the_choice_names_it() -> None:
    trained = workload(precision=None, measured=[])
    spec = plan(
        offer("ampere", rent="$3/h") | {"gpu": "a100-sxm4-40gb"},
        offer("old", rent="$0.5/h") | {"gpu": "gtx-1080-ti"},
        workload=trained,
        time_per_run="40 h",
        search={"ways": ["on-demand"], "nodes": [1], "precision": ["tf32", "bf16"]},
    )
    table = search(spec, trained, models().get("resnet50"))
    assert set(table.precisions) == {"tf32", "fp32", "bf16"}
    result = build_result(table, trained)
    assert result.winner is not None
    assert (result.winner.offer, result.winner.precision) == ("ampere", "bf16")
    assert result.verdict.endswith("trained in bf16.")
    assert "in bf16" in result.winner.setting
    assert {choice.precision for choice in result.all_choices} <= {"tf32", "fp32", "bf16"}
    assert any(words.startswith("bf16") and "gtx-1080-ti" in words for words in result.assumptions)
    assert result.as_json()["winner"]["precision"] == "bf16"


def test_the_default_precision_is_pytorchs_and_mixed_precision_is_suggested() -> None:
    trained = workload(precision=None, measured=[])
    spec = plan(
        offer("ampere", rent="$3/h") | {"gpu": "a100-sxm4-40gb"},
        offer("volta", rent="$2/h"),
        workload=trained,
        search={"ways": ["on-demand"], "nodes": [1]},
    )
    result = build_result(search(spec, trained, models().get("resnet50")), trained)
    assert set(result.precisions) == {"tf32", "fp32"}
    assumptions = " ".join(result.assumptions)
    assert "PyTorch's default" in assumptions and "Mixed precision was not tried" in assumptions


@pytest.mark.parametrize(
    ("spot", "assumed"), [({}, True), ({"interruptions_per_hour": 0.01}, False)]
)
def test_an_assumed_rate_of_spot_interruptions_is_called_assumed(
    spot: dict[str, float], assumed: bool
) -> None:
    trained = workload(precision=None, measured=[])
    spec = plan(
        offer("volta", rent="$2/h") | {"spot": "$1/h"},
        workload=trained,
        search={"ways": ["spot"], "nodes": [1]},
        spot=spot,
    )
    result = build_result(search(spec, trained, models().get("resnet50")), trained)
    (words,) = (words for words in result.assumptions if "spot instance" in words)
    assert ("assumed" in words) == assumed


def test_a_plan_mentions_gradient_width_and_superlinear_figures() -> None:
    figure = {"gpu": "v100-sxm2-16gb", "batch_per_gpu": 64, "samples_per_second": 1000}
    starved = [figure, figure | {"gpus": 4, "samples_per_second": 4800}]
    trained = workload(precision=None, measured=starved, framework="apex")
    spec = plan(
        offer("volta", rent="$2/h"),
        workload=trained,
        search={"ways": ["on-demand"], "nodes": [1], "precision": ["fp32", "fp16"]},
    )
    assumptions = build_result(search(spec, trained, models().get("resnet50")), trained).assumptions
    assert sum("fp16" in words and "apex" in words for words in assumptions) == 1
    assert sum("20%" in words and "4" in words for words in assumptions) == 1
    plain = workload(measured=[])
    assumptions = build_result(search(spec, plain, models().get("resnet50")), plain).assumptions
    assert not any(words.startswith(("Gradients", "Caveat: 4")) for words in assumptions)


def test_the_first_precision_is_kept_if_another_hardly_helps() -> None:
    # Pascal is no faster in fp16
    trained = workload(precision=None, measured=[])
    spec = plan(
        offer("old", rent="$0.5/h") | {"gpu": "gtx-1080-ti"},
        workload=trained,
        search={"ways": ["on-demand"], "nodes": [1], "precision": ["fp32", "fp16"]},
    )
    result = build_result(search(spec, trained, models().get("resnet50")), trained)
    assert result.winner is not None and result.winner.precision == "fp32"


def test_an_offer_without_a_rate_is_named() -> None:
    spec = plan(
        offer("volta", rent="$2/h"),
        offer("tensor", rent="$1/h") | {"gpu": "tpu-v4"},
        search={"gpus": ["tpu-v4", "v100-sxm2-16gb"], "ways": ["on-demand"], "nodes": [1]},
    )
    result = build_result(candidates(spec), workload())
    (missing,) = result.no_rate
    assert (missing.gpu, missing.precision, missing.offers) == ("tpu-v4", "fp16", ("tensor",))
    assert any("fp16 on tpu-v4: tensor" in words for words in result.assumptions)
