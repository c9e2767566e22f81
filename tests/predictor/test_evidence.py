"""Measured multi-GPU figures: their effect on predictions, and the run to measure next."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.catalog import models
from gpuyard.catalog.prices import instance_networks
from gpuyard.catalog.published import (
    HELD_OUT_TABLES,
    SIZING_TABLES,
    TRAINING_TABLES,
    published_table,
)
from gpuyard.catalog.published_rows import MAX_SUPERLINEAR
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor import (
    ClusterPrediction,
    PlatformScenario,
    Prediction,
    create_scenario,
    predict,
)
from gpuyard.predictor.constants import (
    list_spread_sources,
    load_nested_spreads,
    load_tuning,
    spread,
)
from gpuyard.predictor.explain.next_run import find_next_run
from gpuyard.predictor.explain.why import explain
from gpuyard.predictor.software_stacks.evidence import find_measured_points
from gpuyard.predictor.software_stacks.posterior import (
    OVERLAP_FACTORS,
    RATE_FACTORS,
    STACKS,
    TAXES,
    describe_framework,
    load_prior,
    step_seconds_by_stack,
)
from gpuyard.predictor.table import Configurations, Step, compute_step_parts
from gpuyard.predictor.transport import between_rate
from gpuyard.predictor.validation import report, validate
from gpuyard.predictor.validation.points import (
    framework_prior,
    mix_priors,
    score_named_frameworks,
    score_points,
    source_frameworks,
    source_weights,
)
from gpuyard.specs import Cluster, ExchangeOptions, Workload
from tests.conftest import Cli

CLUSTER = "4x8xv100-sxm2-16gb@1x100G"
ONE = {"gpu": "v100-sxm2-16gb", "batch_per_gpu": 32, "samples_per_second": 103.58}
EIGHT = ONE | {"gpus": 8, "samples_per_second": 675.82}
SIXTEEN = ONE | {"gpus": 16, "nodes": 2, "samples_per_second": 909.0}


def scenario(
    *measured: dict[str, object], exchange: ExchangeOptions | None = None
) -> PlatformScenario:
    workload = Workload.model_validate(
        {"name": "BERT", "model": "bert-base", "batch_per_gpu": 32, "measured": measured}
    )
    return create_scenario(
        workload, models().get("bert-base"), read_cluster(CLUSTER), exchange=exchange or ExchangeOptions()
    )  # fmt: skip


def predicted(base: PlatformScenario, *gpus: int) -> ClusterPrediction:
    return predict(base, base.platform.placements(gpus))


def width(p: Prediction) -> float:
    return (p.high - p.low) / 2 / p.samples_per_second


def test_a_measured_configuration_is_predicted_at_its_figure() -> None:
    result = predicted(scenario(ONE, EIGHT, SIXTEEN), 1, 8, 16)
    assert [p.samples_per_second for p in result.predictions] == pytest.approx(
        [103.58, 675.82, 909.0], rel=1e-3
    )
    for p in result.predictions:
        assert p.low < p.samples_per_second < p.high
        assert width(p) < 0.03
        assert p.step.seconds == pytest.approx(p.gpus * p.batch_per_gpu / p.samples_per_second)


@pytest.mark.parametrize("written", ["Horovod", "tf_distribute", "PyTorch DDP", " tf-distribute"])
def test_a_framework_is_found_however_its_name_is_written(written: str) -> None:
    workload = Workload.model_validate({"name": "w", "model": "resnet50", "framework": written})
    assert workload.framework in ("horovod", "tf-distribute", "pytorch-ddp")


@pytest.mark.parametrize(("written", "meant"), [("horvod", "horovod"), ("pytorch", "pytorch-ddp")])
def test_a_framework_that_is_not_known_names_the_closest(written: str, meant: str) -> None:
    base = scenario(ONE)
    workload = base.workload.model_copy(update={"framework": written})
    assert f"did you mean '{meant}'?" in describe_framework(replace(base, workload=workload))
    strange = base.workload.model_copy(update={"framework": "zzz"})
    assert "did you mean" not in describe_framework(replace(base, workload=strange))


def test_contradicting_figures_are_both_covered_and_named() -> None:
    half = EIGHT | {"samples_per_second": 300.0}
    both = predicted(scenario(ONE, EIGHT, half), 8, 32)
    (eight, more), plain = both.predictions, predicted(scenario(ONE, EIGHT), 8, 32)
    assert eight.low < 300.0
    assert eight.high > 675.82
    # whichever of them is right, what it alone would say of more GPUs is held too
    for alone in (EIGHT, half):
        single = predicted(scenario(ONE, alone), 32).predictions[0]
        assert more.low <= single.low * 1.001
        assert more.high >= single.high * 0.999
    assert width(more) > width(plain.predictions[1])
    assert "8 GPUs on 1 node at a batch of 32" in both.points_note
    assert "300 and at 676" in both.points_note
    assert plain.points_note == ""
    again = predicted(scenario(ONE, EIGHT, EIGHT | {"samples_per_second": 668.0}), 8)
    assert again.points_note == ""
    assert width(again.predictions[0]) < 0.04
    assert again.predictions[0].samples_per_second == pytest.approx(672, rel=5e-3)


@pytest.mark.parametrize(("rate", "odd"), [(6.758, True), (67_582.0, True), (300.0, False)])
def test_a_figure_that_no_software_explains_is_doubted(rate: float, odd: bool) -> None:
    note = predicted(scenario(ONE, EIGHT | {"samples_per_second": rate}), 8).points_note
    assert ("check the figure" in note and "at a batch of 32" in note) == odd


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"gpu": "a100-sxm4-40gb"}, "8 × a100-sxm4-40gb: another GPU"),
        ({"precision": "fp16"}, "8 × v100-sxm2-16gb: in fp16, not fp32"),
        ({"gpus": 64}, "64 × v100-sxm2-16gb: 64 GPUs per machine"),
        ({"nodes": 2, "network": "10 Gbit/s"}, "8 × v100-sxm2-16gb: on another network"),
    ],
)
def test_a_figure_of_several_gpus_that_is_not_used_is_named(
    other: dict[str, object], why: str
) -> None:
    result = predicted(scenario(ONE, EIGHT | other), 8)
    assert result.points == 0
    assert why in result.points_note


def test_a_figure_moves_and_narrows_other_predictions() -> None:
    plain, single, two = (predicted(scenario(*m), 32).predictions[0]
                       for m in ((ONE,), (ONE, EIGHT), (ONE, EIGHT, SIXTEEN)))  # fmt: skip
    assert plain.samples_per_second > single.samples_per_second
    assert plain.samples_per_second > two.samples_per_second
    assert width(two) < width(single)
    assert width(two) < 0.65 * width(plain)
    assert plain.before is None
    assert two.before is not None
    assert two.before.samples_per_second == pytest.approx(plain.samples_per_second)
    assert (two.before.low, two.before.high) == pytest.approx((plain.low, plain.high))
    assert two.low <= 1551.52 <= two.high  # what was published


def test_figures_of_several_gpus_are_not_used_as_single_gpu_speed() -> None:
    with_both, alone = scenario(ONE, EIGHT), scenario(ONE)
    assert with_both.line == alone.line
    estimated = scenario(EIGHT)
    assert estimated.line.basis == "published"
    # eight GPUs determine the speed of one if none was measured
    estimates = predicted(estimated, 1, 8).predictions
    assert estimates[1].samples_per_second == pytest.approx(675.82, rel=1e-3)
    (unmeasured,) = predicted(scenario(), 1).predictions
    assert abs(estimates[0].samples_per_second - 103.58) < abs(
        unmeasured.samples_per_second - 103.58
    )


def test_figures_of_another_gpu_precision_or_machine_are_ignored() -> None:
    others = (
        EIGHT | {"gpu": "a100-sxm4-40gb"},
        EIGHT | {"precision": "fp16"},
        EIGHT | {"gpus": 16},  # on one node, which has 8
    )
    assert find_measured_points(scenario(ONE, *others)) == ()
    assert len(find_measured_points(scenario(ONE, EIGHT, *others))) == 1


def test_a_figure_of_the_default_exchange_is_not_used_for_another() -> None:
    halved = predicted(scenario(ONE, SIXTEEN, exchange=ExchangeOptions(compress="fp16")), 16)
    assert halved.predictions[0].samples_per_second > 909.0 * 1.01


def test_the_usual_stack_of_the_grid_is_the_step_model_itself() -> None:
    base = scenario(ONE)
    pairs = [(p, 32) for p in base.platform.placements([1, 2, 8, 16, 32])]
    table = base.build_table(Configurations.from_pairs(pairs))
    by_stack = step_seconds_by_stack(table)
    usual = STACKS.index((1.0, 1.0, 0.0))
    assert by_stack.shape == (len(RATE_FACTORS) * len(OVERLAP_FACTORS) * len(TAXES), len(pairs))
    assert by_stack[usual] == pytest.approx(compute_step_parts(table).step_seconds)
    # one GPU exchanges nothing
    assert by_stack[:, 0] == pytest.approx(np.full(len(STACKS), by_stack[0, 0]))
    slow = STACKS.index((RATE_FACTORS[0], 0.0, TAXES[-1]))
    assert np.all(by_stack[slow, 1:] > by_stack[usual, 1:])
    assert load_prior().sum() == pytest.approx(1.0)


def test_the_next_run_is_smaller_and_narrows_as_predicted() -> None:
    base = scenario(ONE)
    largest = predicted(base, 32).predictions[0]
    run = find_next_run(base, largest)
    assert run is not None
    assert 1 < run.gpus < 32
    assert run.width_after < run.width_now == pytest.approx(width(largest))
    assert f"{run.gpus} GPUs" in run.sentence
    # what it promises is about what comes
    point = ONE | {"gpus": run.gpus, "nodes": run.nodes}
    point["samples_per_second"] = predicted(base, run.gpus).predictions[0].samples_per_second * 0.93
    after = predicted(scenario(ONE, point), 32).predictions[0]
    assert width(after) == pytest.approx(run.width_after, rel=0.35)


def test_a_single_gpu_can_be_the_next_run() -> None:
    base = scenario()
    run = find_next_run(base, predicted(base, 2).predictions[0])
    assert run is not None
    assert run.gpus in (1, 2)
    assert find_next_run(base, predicted(base, 1).predictions[0]) is None


def test_stretching_a_step_changes_its_waiting() -> None:
    step = Step(1.0, 0.3, 0.0, 0.1)
    assert step.stretch_to(1.8).compute_seconds == 1.0
    assert step.stretch_to(1.8).exposed_communication_seconds == pytest.approx(0.6)
    assert step.stretch_to(1.8).seconds == pytest.approx(1.8)
    assert step.stretch_to(0.9).compute_seconds == pytest.approx(0.9)
    assert step.stretch_to(0.9).exposed_communication_seconds == 0.0


def test_more_nodes_than_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be in 3 nodes"):
        scenario(ONE | {"gpus": 2, "nodes": 3})


def test_figures_narrow_the_interval_on_published_sources() -> None:
    by_source = score_points((0, 1, 2))
    assert len(by_source) == 57
    not_narrower = set()
    for source, (none, single, two) in by_source.items():
        widest = max(single.median_interval_width, two.median_interval_width)
        assert widest <= none.median_interval_width * 1.000001, source
        if two.median_interval_width > 0.999 * none.median_interval_width:
            not_narrower.add(source)
    assert not_narrower == {"User of deep-learning-models"}
    by_count = list(zip(*by_source.values(), strict=True))
    # docs/validation.md names them
    few = {"User of deep-learning-models", "User of Horovod", "User of Gluon", "DLPerf PyTorch"}
    for scores in by_count:
        assert 0.87 <= np.mean([score.inside_interval for score in scores]) <= 0.955
        covered = {
            name: score.inside_interval for name, score in zip(by_source, scores, strict=True)
        }
        assert {name for name, share in covered.items() if share < 0.75} <= few
    errors = [np.mean([score.median_abs_error for score in scores]) for scores in by_count]
    assert errors[1] < 0.7 * errors[0]


def test_validate_scores_points(cli: Cli) -> None:
    done = cli("validate", "--table", "horovod", "--points", "0,2", "--json")
    scores = json.loads(done.stdout)
    (scores,) = scores["points"].values()
    assert [score["points"] for score in scores] == [0, 2]
    refused = cli("validate", "--points", "two", status=2)
    assert "whole numbers from 0 to 9" in refused.stderr


def test_unknown_machines_have_no_points() -> None:
    with pytest.raises(UserMistake):
        predicted(scenario(ONE, EIGHT), 64)


def test_a_known_framework_is_predicted_from_its_published_results() -> None:
    def under(framework: str | None) -> ClusterPrediction:
        base = scenario(ONE)
        workload = base.workload.model_copy(update={"framework": framework})
        return predicted(replace(base, workload=workload), 1, 16)

    plain, packed, unknown = under(None), under("tf-distribute"), under("jax")
    single, several = packed.predictions
    assert several.samples_per_second < 0.8 * plain.predictions[1].samples_per_second
    assert several.before is not None
    assert several.high - several.low <= (several.before.high - several.before.low) * (1 + 1e-9)
    assert single.samples_per_second == pytest.approx(103.58)
    assert "tf-distribute" in packed.framework_note
    assert unknown.predictions == plain.predictions
    assert "no published results for jax" in unknown.framework_note
    assert plain.framework_note == ""


def sending(
    gpus: int = 32, strategy: str = "ddp", compress: str | None = None, **keys: object
) -> ClusterPrediction:
    workload = scenario(ONE).workload.model_copy(update={"precision": "fp16", **keys})
    base = create_scenario(
        workload, models().get("bert-base"), read_cluster(CLUSTER), strategy=strategy,
        exchange=ExchangeOptions(compress=compress),
    )  # fmt: skip
    return predicted(base, gpus)


def test_the_gradient_format_follows_the_workload_or_its_framework() -> None:
    plain, shown, compressed = sending(), sending(gradient_dtype="bf16"), sending(compress="fp16")
    assert (plain.gradient_dtype, plain.gradient_note) == ("fp32", "")
    assert shown.gradient_dtype == "bf16"
    assert "set in the workload" in shown.gradient_note
    single, half = shown.predictions[0], compressed.predictions[0]
    assert single.samples_per_second == half.samples_per_second
    assert single.samples_per_second > 1.05 * plain.predictions[0].samples_per_second
    assert sending(gradient_dtype="fp16", compress="fp16").predictions == compressed.predictions

    apex = sending(framework="apex")
    assert apex.gradient_dtype == "fp16"
    assert "default of apex" in apex.gradient_note
    wide = sending(framework="apex", gradient_dtype="fp32")
    assert wide.predictions[0].samples_per_second < apex.predictions[0].samples_per_second
    assert sending(framework="apex", precision="fp32").gradient_dtype == "fp32"
    assert sending(framework="horovod").gradient_dtype == "fp32"


def test_narrow_gradients_are_not_proposed_again() -> None:
    def offered(**keys: object) -> list[str]:
        workload = scenario(ONE).workload.model_copy(update=keys)
        base = create_scenario(workload, models().get("bert-base"), read_cluster(CLUSTER))
        (here,) = predicted(base, 32).predictions
        return [remedy.change for remedy in explain(base, here).remedies]

    sent = "gradients sent as 16-bit numbers"
    assert sent in offered()
    assert sent not in offered(gradient_dtype="fp16")


def test_dataparallel_rejects_a_gradient_dtype() -> None:
    with pytest.raises(UserMistake, match="gradient_dtype needs ddp or horovod"):
        sending(8, strategy="dataparallel", gradient_dtype="fp16")


def test_a_single_gpu_figure_limited_by_input_is_noticed(cli: Cli, tmp_path: Path) -> None:
    fed = ONE | {"gpus": 2, "samples_per_second": 2.2 * 103.58}
    scores = predicted(scenario(ONE, fed), 8)
    assert "2 × v100-sxm2-16gb" in scores.base_note
    assert "10% faster each" in scores.base_note
    assert "input_workers" in scores.base_note
    stored = fed | {"precision": "fp32"}  # as records of runs say it
    assert predicted(scenario(ONE, stored), 8).base_note == scores.base_note
    for other in (EIGHT, fed | {"batch_per_gpu": 64}, fed | {"precision": "fp16"}):
        assert predicted(scenario(ONE, other), 8).base_note == ""
    file = tmp_path / "w.yaml"
    file.write_text(
        "name: BERT\nmodel: bert-base\nmeasured:\n"
        "- {gpu: v100-sxm2-16gb, batch_per_gpu: 32, samples_per_second: 103.58}\n"
        "- {gpu: v100-sxm2-16gb, gpus: 2, batch_per_gpu: 32, samples_per_second: 228}\n"
    )
    shown = " ".join(cli("predict", str(file), "--on", CLUSTER, "--gpus", "8").stdout.split())
    assert "faster each than one alone" in shown


def test_no_published_single_gpu_figure_is_limited_by_input() -> None:
    for table in (*TRAINING_TABLES, *SIZING_TABLES, *HELD_OUT_TABLES):
        for row in published_table(table).rows:
            base = row.anchor
            if row.batch_per_gpu == base.batch_per_gpu:
                each = row.samples_per_second / row.gpus * base.gpus / base.samples_per_second
                assert each <= MAX_SUPERLINEAR, row
    left_out = dict(published_table("nvidia_examples").skipped)
    assert left_out["several GPUs are faster each than the figure that they start from"] > 0


def test_input_workers_come_from_the_table() -> None:
    starved = [row for row in published_table("dlperf").rows if row.input_workers == 1]
    assert {row.source for row in starved} == {"DLPerf PyTorch"}
    assert {row.gpus for row in starved} == {8, 16, 32}


def test_named_frameworks_hold_on_sources_left_out() -> None:
    scores = score_named_frameworks()
    assert len(scores) > 15
    assert 0.87 <= np.mean([score.inside_interval for score in scores.values()]) <= 0.95
    plain = score_points((0,))
    widths = [
        (scores[name].median_interval_width, plain[name][0].median_interval_width)
        for name in scores
    ]
    assert np.mean([named for named, _ in widths]) < np.mean([bare for _, bare in widths])


def test_one_odd_source_of_a_framework_does_not_rule_its_next_user() -> None:
    """If one source uses the framework, all others together weigh as much as that one."""
    named = framework_prior("mindspore")
    own, others = source_weights()["DLPerf MindSpore"], mix_priors(list(source_weights().values()))
    assert named == pytest.approx((mix_priors([own]) + others) / 2)
    of_horovod = [
        weights for name, weights in source_weights().items()
        if "horovod" in source_frameworks()[name]
    ]  # fmt: skip
    assert framework_prior("horovod") == pytest.approx(
        0.75 * mix_priors(of_horovod) + 0.25 * others
    )


def test_explanations_agree_with_measured_figures() -> None:
    """Eight GPUs that do the work of three: neither are all 32 worth adding, nor would a remedy make up for it."""
    slow = EIGHT | {"samples_per_second": 3 * 103.58}
    base = scenario(ONE, slow)
    *_, largest = predicted(base, 8, 32).predictions
    why = explain(base, largest)
    knee = why.knee.current
    assert knee.gpus < 8
    assert knee.scaling_efficiency > 0.5
    for remedy in why.remedies:
        if not remedy.adds_gpus:
            expected = remedy.gain * largest.samples_per_second
            assert remedy.samples_per_second == pytest.approx(expected), remedy.change
    shown = " ".join(why.sentences)
    assert "0% of that hides" not in shown
    assert "no formula explains" in shown
    plain = scenario(ONE)
    (unmeasured,) = predicted(plain, 32).predictions
    of_formulas = next(x for x in explain(plain, unmeasured).sentences if "The choke is" in x)
    assert of_formulas in why.sentences


def test_gpus_that_cannot_reach_each_other_exchange_through_the_host() -> None:
    def seconds(**more: object) -> float:
        machine = {"gpu": "v100-sxm2-16gb", "gpus": 8, "topology": "nvlink-hybrid-cube-mesh"}
        cluster = Cluster.model_validate({"name": "one", "machine": machine | more})
        base = create_scenario(scenario(ONE).workload, models().get("bert-base"), cluster)
        (only,) = predicted(base, base.platform.gpus_per_node).predictions
        return only.step.exposed_communication_seconds

    assert seconds(peer_to_peer=True) == seconds()
    assert seconds(peer_to_peer=False) > 5 * seconds()
    # links of their own carry nothing then, however they are laid
    meshed = {"gpu": "a100-sxm4-40gb", "gpus": 4, "topology": "full-mesh"}
    assert seconds(**meshed, peer_to_peer=False) > 5 * seconds(**meshed)


def test_the_answer_shows_that_gpus_exchange_through_the_host(cli: Cli, tmp_path: Path) -> None:
    def asked(peers: str, *more: str) -> str:
        machine = f"{{gpu: v100-sxm2-16gb, gpus: 8, topology: nvlink-hybrid-cube-mesh{peers}}}"
        file = tmp_path / "one.cluster.yaml"
        file.write_text(f"name: one\nmachine: {machine}\n")
        return " ".join(cli("predict", "resnet50", "--on", str(file), *more).stdout.split())

    off = ", peer_to_peer: false"
    note = "Peer to peer: off in the machines of one"
    assert note in asked(off, "--gpus", "1,8")
    assert note in asked(off, "--gpus", "8", "--on", "8xrtx-4090")
    assert json.loads(asked(off, "--gpus", "8", "--json"))["peer_note"].startswith(note)
    assert "Peer to peer" not in asked("", "--gpus", "8")
    assert "Peer to peer" not in asked(off, "--gpus", "1")  # alone, a GPU exchanges nothing


def test_intervals_cover_held_out_sources_with_up_to_two_figures() -> None:
    by_source = score_points((0, 1, 2), HELD_OUT_TABLES)
    assert not set(by_source) & set(list_spread_sources())
    covered = [
        np.mean([score.inside_interval for score in scores])
        for scores in zip(*by_source.values(), strict=True)
    ]
    assert min(covered) >= 0.87
    page = (Path(__file__).parents[2] / "docs" / "validation-intervals.md").read_text(
        encoding="utf-8"
    )
    shown = [f"{100 * share:.0f}%" for share in covered]
    text = " ".join(page.split())
    assert f"{shown[1]} of their rows are inside with one figure, and {shown[2]} with two" in text


def test_flows_that_carry_as_much_as_the_wire_do_not_wait_for_the_slowest() -> None:
    """Amazon caps one flow at 10 Gbit/s, and NCCL opens 16: then the wire is what a machine sends over."""
    tcp, wire, nodes = np.array([True]), np.array([25e9 / 8]), np.array([4.0])
    tuning = load_tuning()

    def rate(flows: float) -> float:
        cap = np.array([flows * 10e9 / 8])
        return float(between_rate(wire, tcp, cap, nodes, tuning)[0])

    assert rate(16) == rate(np.inf) > rate(1)
    (amazon,) = {single.flows for single in instance_networks() if single.per_flow_gbit_per_second}
    assert amazon == 16
    assert instance_networks().get("aws/g5.12xlarge").network.flows == 16


@pytest.mark.parametrize("table", ["horovod", "mlperf_logs", "lab"])
def test_points_can_be_scored_for_any_table(table: str) -> None:
    scores = report(table, (0, 1))
    assert set(scores.points) == set(scores.training.sources)


def test_a_source_is_also_scored_with_a_stretch_chosen_without_it() -> None:
    scores = validate(("dlperf",))
    assert set(scores.nested) == set(
        scores.sources
    )  # and not only those that others would stretch otherwise
    odd = "DLPerf Paddle"
    assert scores.nested[odd] < 0.75 <= (scores.sources[odd].score.inside_interval or 0.0)
    assert min(scores.nested, key=lambda name: scores.nested[name]) == odd
    assert scores.nested_average < (scores.by_source.inside_interval or 0.0)


def test_the_stretch_without_a_source_is_chosen_on_fits_that_had_no_part_of_it() -> None:
    # a fit without a source is narrower, so that the others ask for more of a stretch than beside it
    shipped, nested = spread("DLPerf Paddle"), load_nested_spreads()["DLPerf Paddle"]
    assert 0.65 * shipped.tax < nested.tax < shipped.tax
