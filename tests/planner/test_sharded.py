"""Plans of large models: every machine trains with the fastest layout that fits on it."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog import gpus, models
from gpuyard.catalog.specfiles import read_plan
from gpuyard.errors import UserMistake
from gpuyard.planner import find_cheapest_rental, make_plan
from gpuyard.planner.recommendation import build_result
from gpuyard.planner.result import PlanResult
from gpuyard.planner.search import search, search_sharded
from gpuyard.predictor.large.prediction import predict_large
from gpuyard.predictor.large.training import create_training
from gpuyard.predictor.power import cap_power
from gpuyard.specs import Cluster, Workload
from gpuyard.specs.plan import Plan

EXAMPLES = Path(__file__).parents[2] / "examples"
EIGHT = {
    "gpu": "h100-sxm5-80gb",
    "gpus": 8,
    "topology": "nvswitch",
    "network": {"link": "infiniband-ndr", "rails": 8},
}


def large(**changes: Any) -> Workload:
    return Workload.model_validate(
        {"name": "8b", "model": "llama-3-8b", "parallel": {"global_batch": 128}, **changes}
    )


def plan(workload: Workload, *offers: dict[str, Any], **changes: Any) -> Plan:
    search_changes = changes.pop("search", {})
    return Plan.model_validate(
        {
            "name": "large",
            "workload": workload,
            "tokens": "20B",
            "runs_per_month": 1,
            "horizon": "1 year",
            "offers": list(offers),
            "renting": {"start": "0 s", "data": "0 B", "results": "0 B"},
            **changes,
            "search": {"offers": [o["name"] for o in offers], "nodes": [1, 2, 4], **search_changes},
        }
    )


def result(spec: Plan) -> PlanResult:
    return make_plan(spec)


@pytest.mark.parametrize("power_cap", [None, 450.0])
def test_each_offer_has_the_layout_and_speed_that_predict_finds(power_cap: float | None) -> None:
    spec = plan(
        large(),
        {"name": "rented", "rent": "$20/h", **EIGHT},
        search={"ways": ["on-demand"], "power_cap": power_cap and f"{power_cap:g} W"},
    )
    assert isinstance(spec.workload, Workload)
    table = search_sharded(spec, spec.workload.model_copy(update={"tokens": spec.tokens}))
    cluster = Cluster.model_validate(
        {"name": "same", "nodes": 4, "machine": {"gpu": "h100-sxm5-80gb", "gpus": 8, "topology": "nvswitch"},
         "network": EIGHT["network"]}
    )  # fmt: skip
    speed = 1.0 if power_cap is None else cap_power(gpus().get("h100-sxm5-80gb"), power_cap).speed
    training = create_training(large())
    predicted = predict_large(training, cluster, [8, 16, 32], speed).predictions
    assert len(table) == 3
    for number, expected in enumerate(predicted):
        row = table.row[number]
        assert table.throughputs.layouts[table.throughputs.layout[row]] == expected.layout
        assert table.throughputs.samples_per_second[row] == pytest.approx(
            expected.samples_per_second
        )
        assert table.throughputs.low[row] == pytest.approx(expected.low / expected.sequence)
        hours = 20e9 / expected.tokens_per_second / 3600
        assert table.costs.usd_per_run[number] == pytest.approx(
            hours * expected.nodes * 20, rel=1e-4
        )


def test_choice_gives_tokens_days_energy_and_cost() -> None:
    answer = result(
        plan(large(), {"name": "rented", "rent": "$20/h", **EIGHT}, search={"ways": ["on-demand"]})
    )
    winner = answer.winner
    assert winner is not None
    assert winner.layout is not None
    assert winner.tokens_per_second is not None
    assert answer.goal.tokens_per_run == 20e9
    assert winner.run_seconds == pytest.approx(20e9 / winner.tokens_per_second)
    assert winner.energy_kwh == pytest.approx(
        winner.nodes * 8 * 700 * 1.6 * winner.run_seconds / 3.6e6
    )
    assert winner.layout.description in answer.verdict
    assert answer.as_json()["winner"]["layout"]["tensor"] == winner.layout.tensor


def test_small_gpus_are_ruled_out_only_after_dividing() -> None:
    small = {"gpu": "rtx-4090", "gpus": 4, "topology": "workstation"}
    answer = result(
        plan(
            large(),
            {"name": "small", "rent": "$1/h", **small},
            search={"nodes": [1], "ways": ["on-demand"]},
        )
    )
    assert answer.winner is None
    assert "divided among all of them" in answer.verdict
    lora = large(parallel={"global_batch": 128, "lora": 16})
    fits = result(
        plan(
            lora,
            {"name": "small", "rent": "$1/h", **small},
            search={"nodes": [1], "ways": ["on-demand"]},
        )
    )
    assert fits.winner is not None


def test_model_with_a_profile_is_divided_where_whole_copies_do_not_fit() -> None:
    """GPT-2 1.5B has a profile; AdamW's states don't fit on 16 GB, but they do divided among eight."""
    profile = models().get("gpt2-xl")
    workload = Workload.model_validate(
        {"name": "gpt2-xl", "model": "gpt2-xl", "precision": "fp16", "optimizer": "adamw", "batch_per_gpu": 8,
         "dataset": {"samples": 1_000_000}}
    )  # fmt: skip
    machine = {"gpu": "v100-sxm2-16gb", "gpus": 8, "topology": "nvlink-hybrid-cube-mesh"}
    spec = plan(
        workload, {"name": "v100", "rent": "$10/h", **machine}, tokens=None,
        search={"nodes": [1], "ways": ["on-demand"], "batch": [8], "remedies": ["none"]},
    )  # fmt: skip
    table = search(spec, workload, profile)
    whole = table.throughputs.layout < 0
    assert (table.throughputs.memory_bytes[whole] > 16 * 2**30).all()
    answer = build_result(table, workload)
    assert answer.winner is not None
    assert answer.winner.layout is not None
    assert answer.winner.layout.gpus == 8


def test_gpus_that_lack_the_precision_are_left_out_of_dividing() -> None:
    """GPT-2 1.5B in bf16 must be divided on a T4, which does not compute in bf16."""
    workload = Workload.model_validate(
        {"name": "gpt2-xl", "model": "gpt2-xl", "precision": "bf16", "optimizer": "adamw", "dataset": {"samples": 10_000}}
    )  # fmt: skip
    offers = [
        {"name": gpu, "rent": "$10/h", "gpu": gpu, "gpus": 8, "topology": topology}
        for gpu, topology in (("t4", "workstation"), ("a100-sxm4-80gb", "nvswitch"))
    ]
    spec = plan(workload, *offers, tokens=None, search={"nodes": [1], "ways": ["on-demand"]})
    table = search(spec, workload, models().get("gpt2-xl"))
    divided = {table.offers[table.offer[i]].server.gpu.id for i in range(len(table)) if table.throughputs.layout[table.row[i]] >= 0}  # fmt: skip
    assert "t4" not in divided
    answer = build_result(table, workload)
    assert answer.winner is not None
    assert answer.winner.gpu == "a100-sxm4-80gb"


def test_an_impossible_layout_is_named_as_the_cause() -> None:
    offer = {"name": "rented", "rent": "$20/h", **EIGHT}
    for degrees, words in (({"tp": 3}, "32 heads.*tp="), ({"pp": 3}, "does not divide 8 GPUs")):
        workload = large(parallel={"global_batch": 128, **degrees})
        with pytest.raises(UserMistake, match=words):
            result(plan(workload, offer, search={"nodes": [1], "ways": ["on-demand"]}))


def test_run_needs_a_length() -> None:
    with pytest.raises(UserMistake, match="tokens: 20B"):
        result(plan(large(), {"name": "rented", "rent": "$20/h", **EIGHT}, tokens=None))


def test_uneven_numbers_of_machines_are_left_out() -> None:
    """A global batch of 128 cannot be divided among 37 machines: 37 divides neither heads nor batch."""
    spec = plan(
        large(),
        {"name": "rented", "rent": "$20/h", **EIGHT},
        search={"nodes": [1, 37], "ways": ["on-demand"]},
    )
    assert {choice.nodes for choice in result(spec).front} == {1}


def test_cheapest_rental_is_the_choice_of_a_plan_for_the_same_gpus() -> None:
    workload = large(tokens="20B")
    cheapest = find_cheapest_rental(workload, "h100-sxm5-80gb", 8)
    assert cheapest is not None
    spec = Plan.model_validate(
        {"name": "same", "workload": workload, "runs_per_month": 1, "horizon": "1 month",
         "search": {"ways": ["on-demand"], "gpus": ["h100-sxm5-80gb"], "nodes": [1, 2, 4, 8]}}
    )  # fmt: skip
    table = search_sharded(spec, workload)
    on_eight = table.throughputs.gpus[table.row] == 8
    fits = table.throughputs.memory_bytes[table.row] <= table.columns.memory_bytes[table.offer]
    assert cheapest.usd_per_run == pytest.approx(table.costs.usd_per_run[on_eight & fits].min())


def test_nobody_rents_it() -> None:
    assert find_cheapest_rental(large(tokens="1B"), "titan-v", 7) is None


@pytest.mark.parametrize("name", ["finetune-8b", "pretrain-70b", "moe"])
def test_examples_have_a_choice(name: str) -> None:
    spec = read_plan(EXAMPLES / f"{name}.plan.yaml")
    answer = make_plan(spec, EXAMPLES)
    assert answer.winner is not None
    assert answer.winner.layout is not None
    assert answer.winner.meets_goal


def test_workload_may_be_a_config_file_next_to_the_plan(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        '{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, '
        '"num_attention_heads": 32, "num_hidden_layers": 16, "num_key_value_heads": 8, "vocab_size": 128256, '
        '"max_position_embeddings": 4096, "tie_word_embeddings": true}'
    )
    file = tmp_path / "small.plan.yaml"
    file.write_text(
        "name: small\nworkload: config.json\ntokens: 1B\nruns_per_month: 1\n"
        "search: {gpus: [l40s], nodes: [1], ways: [on-demand]}\n"
    )
    answer = make_plan(read_plan(file), tmp_path)
    assert answer.winner is not None
    assert answer.winner.gpu == "l40s"
