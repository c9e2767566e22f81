"""The plan of the example file, and what it says when something stands in the way."""

from pathlib import Path

import pytest

from gpuyard.catalog import models
from gpuyard.catalog.prices import chassis, gpu_prices
from gpuyard.catalog.specfiles import read_plan
from gpuyard.errors import SpecError, UserMistake
from gpuyard.planner import PlanResult, make_plan
from gpuyard.planner.explain.alternatives import HYBRID, well_known
from gpuyard.planner.explain.assumptions import reserved_words
from gpuyard.planner.search import plan_result, search
from gpuyard.specs.plan import Acquisition, Plan
from tests.planner.builder import candidates, offer, plan, workload

EXAMPLE = Path(__file__).parents[2] / "examples" / "resnet50.plan.yaml"


@pytest.fixture(scope="module")
def found() -> PlanResult:
    return make_plan(read_plan(EXAMPLE))


def test_the_example_has_a_choice_that_keeps_every_rule(found: PlanResult) -> None:
    chosen = found.winner
    assert chosen is not None
    assert chosen.way == "buy"  # data may not leave the building
    assert chosen.run_seconds <= 8 * 3600
    assert chosen.total_usd <= 250_000
    assert chosen.watts <= 20_000
    assert chosen.update_samples <= 8192
    assert chosen.usd_per_run_low <= chosen.usd_per_run <= chosen.usd_per_run_high
    assert chosen.effective_gpus == pytest.approx(chosen.gpus * chosen.scaling_efficiency)


def test_hundreds_of_thousands_are_searched_and_every_drop_has_a_counted_reason(
    found: PlanResult,
) -> None:
    assert found.candidates > 100_000
    counted = {left.reason: left.candidates for left in found.left_out}
    assert counted["data may not leave the building"] > 0
    assert counted["needs more memory than its GPU has"] > 0
    assert counted["draws more than the 20 kW of the site"] > 0
    assert found.allowed + sum(counted.values()) >= found.candidates
    assert 0 < found.feasible <= found.allowed < found.candidates


def test_the_front_gets_cheaper_as_it_gets_slower(found: PlanResult) -> None:
    seconds = [choice.run_seconds for choice in found.front]
    usd = [choice.usd_per_run for choice in found.front]
    assert seconds == sorted(seconds)
    assert usd == sorted(usd, reverse=True)
    assert all(choice.allowed for choice in found.front)


def test_every_well_known_alternative_is_answered(found: PlanResult) -> None:
    assert [other.name for other in found.alternatives] == [
        *(asked.name for asked in well_known() if asked.ways != ("keep",)), HYBRID
    ]  # fmt: skip
    told = {other.name: other.sentence for other in found.alternatives}
    assert "data may not leave the building" in told["AWS p4d.24xlarge (8 × A100) on demand"]
    assert "data may not leave" in told["a server with eight H100, bought and colocated"]
    assert "over the budget" in told["a server with eight H100, bought"]
    for other in found.alternatives:
        assert other.sentence.startswith(("Lost", "Ruled out", "Meets", "This is", "As cheap"))


def test_prices_say_their_date_and_estimates_say_so(found: PlanResult) -> None:
    for choice in (*found.front, *(other.choice for other in found.alternatives if other.choice)):
        assert choice.price_date is not None
        assert choice.price_is_estimate == ("estimate" in choice.price_source)


def test_a_machine_from_parts_is_as_old_as_its_oldest_part(found: PlanResult) -> None:
    built = [choice for choice in found.front if choice.price_is_estimate]
    assert built
    for choice in built:
        box, gpu = choice.offer.split("/")[0], choice.gpu
        dates = {chassis().get(box).date.isoformat(), gpu_prices().get(gpu).date.isoformat()}
        assert choice.price_date == min(dates)
        assert all(date in choice.price_source for date in dates)


def test_a_gpu_whose_price_the_plan_gives_has_no_date_of_the_catalog() -> None:
    asked = plan(prices={"gpus": [{"gpu": "rtx-4090", "price": "$1"}]},
                 search={"offers": ["workstation-4/4x-rtx-4090"], "ways": ["buy"], "nodes": [1]})  # fmt: skip
    found = plan_result(candidates(asked), workload())
    assert found.winner is not None
    assert found.winner.price_date == chassis().get("workstation-4").date.isoformat()
    assert gpu_prices().get("rtx-4090").date.isoformat() not in found.winner.price_source


def test_a_reserved_price_that_no_list_has_is_called_assumed(found: PlanResult) -> None:
    told = {other.name: other.choice for other in found.alternatives}
    reserved = told["AWS p4d.24xlarge (8 × A100) reserved for three years"]
    assert reserved is not None and reserved.price_is_assumed
    assert "(price assumed)" in reserved.what
    assert sum("is assumed to be" in words for words in found.assumptions) == 2
    others = [choice for choice in told.values() if choice is not None and choice is not reserved]
    assert not any(choice.price_is_assumed for choice in others)


def test_a_budget_that_is_too_small_says_by_how_much() -> None:
    asked = plan(
        offer("a", rent="$3/h"), time_per_run="11 h", budget="$10,000",
        search={"ways": ["on-demand"]},
    )  # fmt: skip
    found = plan_result(candidates(asked), workload())
    assert found.winner is None
    (budget,) = found.binding
    assert budget.constraint == "budget"
    assert budget.missed_by == pytest.approx(10_800 - 10_000)
    assert "The budget is short by $800" in found.verdict


def test_a_time_that_is_too_short_says_by_how_much() -> None:
    asked = plan(offer("a", rent="$3/h"), time_per_run="8 h", search={"ways": ["on-demand"]})
    found = plan_result(candidates(asked), workload())
    assert found.winner is None
    (late,) = found.binding
    assert late.constraint == "time"
    assert late.missed_by == pytest.approx(2 * 3600)
    assert "The time is short by 2 h" in found.verdict


def test_rules_that_leave_nothing_are_counted() -> None:
    asked = plan(
        offer("a", rent="$3/h"), policy={"data_stays": True}, search={"ways": ["on-demand"]}
    )
    found = plan_result(candidates(asked), workload())
    assert found.winner is None
    assert "1 because: data may not leave the building" in found.verdict
    assert not found.front


def test_memory_filters_the_batch() -> None:
    asked = plan(offer("a", rent="$3/h"), search={"ways": ["on-demand"], "batch": [64, 4096]})
    found = plan_result(candidates(asked), workload())
    assert [c.batch_per_gpu for c in found.front] == [64]
    assert found.left_out[0].candidates == 1


def test_policy_keeps_to_the_named_clouds() -> None:
    asked = read_plan(EXAMPLE).model_copy(
        update={"policy": Plan.model_fields["policy"].default.model_copy(update={"clouds": ("aws",)})}
    )  # fmt: skip
    found = make_plan(asked)
    rented = [c for c in found.front if c.way not in ("buy", "colocate")]
    assert rented and all(c.offer.startswith("aws/") for c in rented)


def test_a_quote_replaces_the_catalog() -> None:
    text = {"servers": [{"machine": "dgx-h100", "price": "$1"}]}
    asked = plan(prices=text, search={"offers": ["dgx-h100"], "ways": ["buy"], "nodes": [1]})
    found = plan_result(candidates(asked), workload())
    assert found.winner is not None
    assert found.winner.price_source == "the plan"
    assert found.winner.price_date is None


def test_without_a_dataset_nobody_knows_what_a_run_is() -> None:
    asked = plan(offer("a", rent="$3/h")).model_copy(update={"workload": "resnet50"})
    with pytest.raises(UserMistake, match="dataset"):
        make_plan(asked)


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
    with pytest.raises(UserMistake, match="no rate is known for fp16 on tpu-v4"):
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
        ("owning: {busy_at_most: 130 %}", ":4: owning.busy_at_most: '130 %' is not a share"),
        ("site: {power: -1 kW}", "zero or more"),
        ("site: room", ":4: site: 'room' is not a site file"),
        ("site: [room]", "site: expected keys with values like {key: value}, got a list"),
        ("search: {nodes: []}", ":4: search.nodes: needs at least 1 item"),
        ("search: {ways: [hybrid, buy]}", ":4: search: hybrid combines owning and renting"),
        ("people: {researchers: many}", "researchers: expected a whole number, got 'many'"),
        ("offers: [{name: a, gpu: t4}]", "'rent', 'spot' or 'buy'"),
        ("budgt: $5", ":4: budgt: no key is called 'budgt'; did you mean 'budget'?"),
        ("offers: [{name: a, gpu: t4, buy: $1}, {name: a, gpu: t4, buy: $1}]", "two offers"),
    ],
)
def test_nonsense_gets_a_sentence(tmp_path: Path, line: str, sentence: str) -> None:
    file = tmp_path / "x.plan.yaml"
    file.write_text(f"name: x\nworkload: resnet50\nruns_per_month: 3\n{line}\n", encoding="utf-8")
    with pytest.raises(SpecError) as mistake:
        read_plan(file)
    assert sentence in str(mistake.value)
    assert str(file) in str(mistake.value)


@pytest.mark.parametrize(
    ("years", "way", "words"),
    [
        (1.0, "reserved-3-years", "is left out: its term is longer than the horizon"),
        (1.5, "reserved-1-year", "Its last term runs past the horizon and is paid to its end"),
        (2.0, "reserved-1-year", "% off the on-demand price"),
    ],
)
def test_a_term_that_does_not_fit_the_horizon_is_said(
    years: float, way: Acquisition, words: str
) -> None:
    asked = plan(horizon=f"{years * 12:g} months")
    assert words in reserved_words(asked, way)


def test_a_term_that_fits_has_nothing_to_say_of_its_end() -> None:
    assert "past the horizon" not in reserved_words(plan(horizon="2 years"), "reserved-1-year")


def test_precision_is_searched_and_the_choice_names_it() -> None:
    known = workload(precision=None, measured=[])
    asked = plan(
        offer("ampere", rent="$3/h") | {"gpu": "a100-sxm4-40gb"},
        offer("old", rent="$0.5/h") | {"gpu": "gtx-1080-ti"},
        workload=known,
        time_per_run="40 h",
        search={"ways": ["on-demand"], "nodes": [1], "precision": ["tf32", "bf16"]},
    )
    found = search(asked, known, models().get("resnet50"))
    assert set(found.precisions) == {"tf32", "fp32", "bf16"}
    result = plan_result(found, known)
    assert result.winner is not None
    assert (result.winner.offer, result.winner.precision) == ("ampere", "bf16")
    assert result.verdict.endswith("trained in bf16.")
    assert "in bf16" in result.winner.setting
    assert {choice.precision for choice in result.shown} <= {"tf32", "fp32", "bf16"}
    assert any(
        "Computed in bf16 at the speed of fp32 or slower" in words for words in result.assumptions
    )
    assert result.as_json()["winner"]["precision"] == "bf16"


def test_without_a_word_it_is_pytorchs_default_and_mixed_precision_is_named() -> None:
    known = workload(precision=None, measured=[])
    asked = plan(
        offer("ampere", rent="$3/h") | {"gpu": "a100-sxm4-40gb"},
        offer("volta", rent="$2/h"),
        workload=known,
        search={"ways": ["on-demand"], "nodes": [1]},
    )
    result = plan_result(search(asked, known, models().get("resnet50")), known)
    assert set(result.precisions) == {"tf32", "fp32"}
    said = " ".join(result.assumptions)
    assert "PyTorch's default" in said and "Mixed precision was not tried" in said


def test_a_plan_says_how_wide_gradients_are_and_doubts_a_base_that_waits_for_input() -> None:
    figure = {"gpu": "v100-sxm2-16gb", "batch_per_gpu": 64, "samples_per_second": 1000}
    starved = [figure, figure | {"gpus": 4, "samples_per_second": 4800}]
    known = workload(precision=None, measured=starved, framework="apex")
    asked = plan(
        offer("volta", rent="$2/h"),
        workload=known,
        search={"ways": ["on-demand"], "nodes": [1], "precision": ["fp32", "fp16"]},
    )
    said = plan_result(search(asked, known, models().get("resnet50")), known).assumptions
    assert sum("sent as fp16, as apex does" in words for words in said) == 1
    assert sum("20 % faster each than one alone" in words for words in said) == 1
    plain = workload(measured=[])
    said = plan_result(search(asked, plain, models().get("resnet50")), plain).assumptions
    assert not any(words.startswith(("Gradients", "Caveat: 4")) for words in said)


def test_the_precision_that_was_asked_for_first_is_kept_where_another_hardly_helps() -> None:
    # Pascal is no faster in fp16
    known = workload(precision=None, measured=[])
    asked = plan(
        offer("old", rent="$0.5/h") | {"gpu": "gtx-1080-ti"},
        workload=known,
        search={"ways": ["on-demand"], "nodes": [1], "precision": ["fp32", "fp16"]},
    )
    result = plan_result(search(asked, known, models().get("resnet50")), known)
    assert result.winner is not None and result.winner.precision == "fp32"


def test_an_offer_without_a_rate_is_named() -> None:
    asked = plan(
        offer("volta", rent="$2/h"),
        offer("tensor", rent="$1/h") | {"gpu": "tpu-v4"},
        search={"gpus": ["tpu-v4", "v100-sxm2-16gb"], "ways": ["on-demand"], "nodes": [1]},
    )
    result = plan_result(candidates(asked), workload())
    (missing,) = result.no_rate
    assert (missing.gpu, missing.precision, missing.offers) == ("tpu-v4", "fp16", ("tensor",))
    assert "Left out, as no rate is known for fp16 on tpu-v4: tensor." in result.assumptions
