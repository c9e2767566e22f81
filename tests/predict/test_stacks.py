"""Measured figures of several GPUs: what they do to predictions, and which one to get next."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuyard.catalog import models
from gpuyard.catalog.prices import instance_networks
from gpuyard.catalog.published import (
    JUDGE_TABLES,
    SIZING_TABLES,
    TRAINING_TABLES,
    published,
)
from gpuyard.catalog.published_rows import MOST_SUPERLINEAR
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predict import ClusterPrediction, PlatformScenario, Prediction, predict, scenario_of
from gpuyard.predict.constants import fitted, nested_spreads, spread, spread_sources
from gpuyard.predict.explain.why import explain
from gpuyard.predict.stacks.measured import measured_points
from gpuyard.predict.stacks.next_run import next_run
from gpuyard.predict.stacks.posterior import (
    HIDES,
    RATES,
    STACKS,
    TAXES,
    framework_words,
    prior,
    step_seconds,
)
from gpuyard.predict.table import Configurations, Step, step_parts
from gpuyard.predict.transport import between_rate
from gpuyard.predict.validation import report, validate
from gpuyard.predict.validation.points import (
    framework_prior,
    prior_of,
    score_described,
    score_points,
    source_frameworks,
    source_weights,
)
from gpuyard.specs import Cluster, ExchangeOptions, Workload
from tests.conftest import Cli

CLUSTER = "4x8xv100-sxm2-16gb@100G"
ONE = {"gpu": "v100-sxm2-16gb", "batch_per_gpu": 32, "samples_per_second": 103.58}
EIGHT = ONE | {"gpus": 8, "samples_per_second": 675.82}
SIXTEEN = ONE | {"gpus": 16, "nodes": 2, "samples_per_second": 909.0}


def scenario(
    *measured: dict[str, object], exchange: ExchangeOptions | None = None
) -> PlatformScenario:
    workload = Workload.model_validate(
        {"name": "BERT", "model": "bert-base", "batch_per_gpu": 32, "measured": measured}
    )
    return scenario_of(
        workload, models().get("bert-base"), read_cluster(CLUSTER), exchange=exchange or ExchangeOptions()
    )  # fmt: skip


def predicted(made: PlatformScenario, *gpus: int) -> ClusterPrediction:
    return predict(made, made.platform.placements(gpus))


def width(p: Prediction) -> float:
    return (p.high - p.low) / 2 / p.samples_per_second


def test_a_measured_configuration_gets_its_own_figure_back() -> None:
    made = predicted(scenario(ONE, EIGHT, SIXTEEN), 1, 8, 16)
    assert [p.samples_per_second for p in made.predictions] == pytest.approx(
        [103.58, 675.82, 909.0], rel=1e-3
    )
    for p in made.predictions:
        assert p.low < p.samples_per_second < p.high
        assert width(p) < 0.03
        assert p.step.seconds == pytest.approx(p.gpus * p.batch_per_gpu / p.samples_per_second)


@pytest.mark.parametrize("written", ["Horovod", "tf_distribute", "PyTorch DDP", " tf-distribute"])
def test_a_framework_is_found_however_its_name_is_written(written: str) -> None:
    workload = Workload.model_validate({"name": "w", "model": "resnet50", "framework": written})
    assert workload.framework in ("horovod", "tf-distribute", "pytorch-ddp")


@pytest.mark.parametrize(("written", "meant"), [("horvod", "horovod"), ("pytorch", "pytorch-ddp")])
def test_a_framework_that_is_not_known_names_the_closest(written: str, meant: str) -> None:
    known = scenario(ONE)
    workload = known.workload.model_copy(update={"framework": written})
    assert f"did you mean '{meant}'?" in framework_words(replace(known, workload=workload))
    strange = known.workload.model_copy(update={"framework": "zzz"})
    assert "did you mean" not in framework_words(replace(known, workload=strange))


def test_figures_that_contradict_each_other_are_both_held_and_named() -> None:
    half = EIGHT | {"samples_per_second": 300.0}
    both = predicted(scenario(ONE, EIGHT, half), 8, 32)
    (eight, more), plain = both.predictions, predicted(scenario(ONE, EIGHT), 8, 32)
    assert eight.low < 300.0
    assert eight.high > 675.82
    # whichever of them is right, what it alone would say of more GPUs is held too
    for alone in (EIGHT, half):
        one = predicted(scenario(ONE, alone), 32).predictions[0]
        assert more.low <= one.low * 1.001
        assert more.high >= one.high * 0.999
    assert width(more) > width(plain.predictions[1])
    assert "8 GPUs on 1 node at a batch of 32 were measured at 300 and at 676" in both.points_note
    assert plain.points_note == ""
    again = predicted(scenario(ONE, EIGHT, EIGHT | {"samples_per_second": 668.0}), 8)
    assert again.points_note == ""
    assert width(again.predictions[0]) < 0.04
    assert again.predictions[0].samples_per_second == pytest.approx(672, rel=5e-3)


@pytest.mark.parametrize(("rate", "odd"), [(6.758, True), (67_582.0, True), (300.0, False)])
def test_a_figure_that_no_software_explains_is_doubted(rate: float, odd: bool) -> None:
    note = predicted(scenario(ONE, EIGHT | {"samples_per_second": rate}), 8).points_note
    assert ("are expected of any software: check the figure, its unit and its batch" in note) == odd


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"gpu": "a100-sxm4-40gb"}, "8 × a100-sxm4-40gb: another GPU"),
        ({"precision": "fp16"}, "8 × v100-sxm2-16gb: in fp16, not fp32"),
        ({"gpus": 64}, "64 × v100-sxm2-16gb: 64 GPUs a machine, these have 8"),
        ({"nodes": 2, "network": "10 Gbit/s"}, "8 × v100-sxm2-16gb: on another network"),
    ],
)
def test_a_figure_of_several_gpus_that_is_not_used_is_named(
    other: dict[str, object], why: str
) -> None:
    found = predicted(scenario(ONE, EIGHT | other), 8)
    assert found.points == 0
    assert found.points_note == f"Not used of what was measured: {why}."


def test_others_are_drawn_towards_what_was_measured_and_surer() -> None:
    plain, one, two = (predicted(scenario(*m), 32).predictions[0]
                       for m in ((ONE,), (ONE, EIGHT), (ONE, EIGHT, SIXTEEN)))  # fmt: skip
    assert plain.samples_per_second > one.samples_per_second
    assert plain.samples_per_second > two.samples_per_second
    assert width(two) < width(one)
    assert width(two) < 0.65 * width(plain)
    assert plain.before is None
    assert two.before is not None
    assert two.before.samples_per_second == pytest.approx(plain.samples_per_second)
    assert (two.before.low, two.before.high) == pytest.approx((plain.low, plain.high))
    assert two.low <= 1551.52 <= two.high  # what was published


def test_figures_of_several_gpus_are_not_taken_for_one_gpus_speed() -> None:
    with_both, alone = scenario(ONE, EIGHT), scenario(ONE)
    assert with_both.line == alone.line
    estimated = scenario(EIGHT)
    assert estimated.line.basis == "roofline"
    # eight GPUs say how fast one is, where nobody measured one
    given = predicted(estimated, 1, 8).predictions
    assert given[1].samples_per_second == pytest.approx(675.82, rel=1e-3)
    (unmeasured,) = predicted(scenario(), 1).predictions
    assert abs(given[0].samples_per_second - 103.58) < abs(unmeasured.samples_per_second - 103.58)


def test_a_figure_of_another_gpu_or_precision_or_machine_does_not_count() -> None:
    others = (
        EIGHT | {"gpu": "a100-sxm4-40gb"},
        EIGHT | {"precision": "fp16"},
        EIGHT | {"gpus": 16},  # on one node, which has 8
    )
    assert measured_points(scenario(ONE, *others)) == ()
    assert len(measured_points(scenario(ONE, EIGHT, *others))) == 1


def test_another_exchange_does_not_get_the_figure_of_the_default_one_back() -> None:
    halved = predicted(scenario(ONE, SIXTEEN, exchange=ExchangeOptions(compress="fp16")), 16)
    assert halved.predictions[0].samples_per_second > 909.0 * 1.01


def test_the_usual_stack_of_the_grid_is_the_step_model_itself() -> None:
    made = scenario(ONE)
    spots = [(p, 32) for p in made.platform.placements([1, 2, 8, 16, 32])]
    table = made.table(Configurations.of(spots))
    by_stack = step_seconds(table)
    usual = STACKS.index((1.0, 1.0, 0.0))
    assert by_stack.shape == (len(RATES) * len(HIDES) * len(TAXES), len(spots))
    assert by_stack[usual] == pytest.approx(step_parts(table).step_seconds)
    # one GPU exchanges nothing
    assert by_stack[:, 0] == pytest.approx(np.full(len(STACKS), by_stack[0, 0]))
    slow = STACKS.index((RATES[0], 0.0, TAXES[-1]))
    assert np.all(by_stack[slow, 1:] > by_stack[usual, 1:])
    assert prior().sum() == pytest.approx(1.0)


def test_the_next_run_is_a_smaller_one_and_keeps_its_promise() -> None:
    made = scenario(ONE)
    wanted = predicted(made, 32).predictions[0]
    run = next_run(made, wanted)
    assert run is not None
    assert 1 < run.gpus < 32
    assert run.width_after < run.width_now == pytest.approx(width(wanted))
    assert f"{run.gpus} GPUs" in run.sentence
    # what it promises is about what comes
    point = ONE | {"gpus": run.gpus, "nodes": run.nodes}
    point["samples_per_second"] = predicted(made, run.gpus).predictions[0].samples_per_second * 0.93
    after = predicted(scenario(ONE, point), 32).predictions[0]
    assert width(after) == pytest.approx(run.width_after, rel=0.35)


def test_one_gpu_is_the_next_run_where_nothing_else_is_asked_about() -> None:
    made = scenario()
    run = next_run(made, predicted(made, 2).predictions[0])
    assert run is not None
    assert run.gpus in (1, 2)
    assert next_run(made, predicted(made, 1).predictions[0]) is None


def test_a_step_that_lasts_longer_waits_longer_and_a_shorter_one_less() -> None:
    step = Step(1.0, 0.3, 0.0, 0.1)
    assert step.lasting(1.8).compute_seconds == 1.0
    assert step.lasting(1.8).exposed_communication_seconds == pytest.approx(0.6)
    assert step.lasting(1.8).seconds == pytest.approx(1.8)
    assert step.lasting(0.9).compute_seconds == pytest.approx(0.9)
    assert step.lasting(0.9).exposed_communication_seconds == 0.0


def test_more_nodes_than_gpus_is_refused() -> None:
    with pytest.raises(ValueError, match="can't be in 3 nodes"):
        scenario(ONE | {"gpus": 2, "nodes": 3})


def test_figures_narrow_the_interval_on_published_sources() -> None:
    found = score_points((0, 1, 2))
    assert len(found) == 57
    not_narrower = set()
    for source, (none, one, two) in found.items():
        widest = max(one.median_interval_width, two.median_interval_width)
        assert widest <= none.median_interval_width * 1.000001, source
        if two.median_interval_width > 0.999 * none.median_interval_width:
            not_narrower.add(source)
    assert not_narrower == {"User of deep-learning-models"}
    for scores in zip(*found.values(), strict=True):
        assert 0.87 <= np.mean([score.inside_interval for score in scores]) <= 0.955
        # docs/validation.md names them
        few = {"User of deep-learning-models", "User of Horovod", "User of Gluon", "DLPerf PyTorch"}
        held = {name: score.inside_interval for name, score in zip(found, scores, strict=True)}
        assert {name for name, share in held.items() if share < 0.75} <= few
    errors = [np.mean([s.median_abs_error for s in scores]) for scores in zip(*found.values(), strict=True)]  # fmt: skip
    assert errors[1] < 0.7 * errors[0]


def test_validate_says_what_points_are_worth(cli: Cli) -> None:
    done = cli("validate", "--table", "horovod", "--points", "0,2", "--json")
    found = json.loads(done.stdout)
    (scores,) = found["points"].values()
    assert [score["points"] for score in scores] == [0, 2]
    refused = cli("validate", "--points", "two", status=2)
    assert "whole numbers from 0 to 9" in refused.stderr


def test_unknown_machines_have_no_points() -> None:
    with pytest.raises(UserMistake):
        predicted(scenario(ONE, EIGHT), 64)


def test_a_framework_that_is_known_is_predicted_by_what_was_published_of_it() -> None:
    def under(framework: str | None) -> ClusterPrediction:
        made = scenario(ONE)
        workload = made.workload.model_copy(update={"framework": framework})
        return predicted(replace(made, workload=workload), 1, 16)

    plain, packed, unknown = under(None), under("tf-distribute"), under("jax")
    one, several = packed.predictions
    assert several.samples_per_second < 0.8 * plain.predictions[1].samples_per_second
    assert several.before is not None
    assert several.high - several.low < several.before.high - several.before.low
    assert one.samples_per_second == pytest.approx(103.58)
    assert "what was published of it" in packed.framework_note
    assert unknown.predictions == plain.predictions
    assert "nothing was published of jax" in unknown.framework_note
    assert plain.framework_note == ""


def sending(
    gpus: int = 32, strategy: str = "ddp", compress: str | None = None, **keys: object
) -> ClusterPrediction:
    workload = scenario(ONE).workload.model_copy(update={"precision": "fp16", **keys})
    made = scenario_of(
        workload, models().get("bert-base"), read_cluster(CLUSTER), strategy=strategy,
        exchange=ExchangeOptions(compress=compress),
    )  # fmt: skip
    return predicted(made, gpus)


def test_gradients_cross_the_network_as_wide_as_the_workload_or_its_framework_says() -> None:
    plain, said, compressed = sending(), sending(gradient_dtype="bf16"), sending(compress="fp16")
    assert (plain.gradient_dtype, plain.gradient_note) == ("fp32", "")
    assert said.gradient_dtype == "bf16"
    assert "as the workload says" in said.gradient_note
    one, half = said.predictions[0], compressed.predictions[0]
    assert one.samples_per_second == half.samples_per_second
    assert one.samples_per_second > 1.05 * plain.predictions[0].samples_per_second
    assert sending(gradient_dtype="fp16", compress="fp16").predictions == compressed.predictions

    apex = sending(framework="apex")
    assert apex.gradient_dtype == "fp16"
    assert "as apex does" in apex.gradient_note
    wide = sending(framework="apex", gradient_dtype="fp32")
    assert wide.predictions[0].samples_per_second < apex.predictions[0].samples_per_second
    assert sending(framework="apex", precision="fp32").gradient_dtype == "fp32"
    assert sending(framework="horovod").gradient_dtype == "fp32"


def test_what_is_narrow_already_is_not_offered_as_a_remedy() -> None:
    def offered(**keys: object) -> list[str]:
        workload = scenario(ONE).workload.model_copy(update=keys)
        made = scenario_of(workload, models().get("bert-base"), read_cluster(CLUSTER))
        (here,) = predicted(made, 32).predictions
        return [remedy.what for remedy in explain(made, here).remedies]

    sent = "gradients sent as 16-bit numbers"
    assert sent in offered()
    assert sent not in offered(gradient_dtype="fp16")


def test_dataparallel_sends_what_it_has() -> None:
    with pytest.raises(UserMistake, match="gradient_dtype needs ddp or horovod"):
        sending(8, strategy="dataparallel", gradient_dtype="fp16")


def test_a_base_that_waits_for_its_input_is_noticed(cli: Cli, tmp_path: Path) -> None:
    fed = ONE | {"gpus": 2, "samples_per_second": 2.2 * 103.58}
    found = predicted(scenario(ONE, fed), 8)
    assert "2 × v100-sxm2-16gb were measured 10 % faster each than one alone" in found.base_note
    assert "input_workers" in found.base_note
    stored = fed | {"precision": "fp32"}  # as records of runs say it
    assert predicted(scenario(ONE, stored), 8).base_note == found.base_note
    for other in (EIGHT, fed | {"batch_per_gpu": 64}, fed | {"precision": "fp16"}):
        assert predicted(scenario(ONE, other), 8).base_note == ""
    file = tmp_path / "w.yaml"
    file.write_text(
        "name: BERT\nmodel: bert-base\nmeasured:\n"
        "- {gpu: v100-sxm2-16gb, batch_per_gpu: 32, samples_per_second: 103.58}\n"
        "- {gpu: v100-sxm2-16gb, gpus: 2, batch_per_gpu: 32, samples_per_second: 228}\n"
    )
    said = " ".join(cli("predict", str(file), "--on", CLUSTER, "--gpus", "8").stdout.split())
    assert "faster each than one alone" in said


def test_no_published_base_that_predictions_stand_on_waits_for_its_input() -> None:
    for table in (*TRAINING_TABLES, *SIZING_TABLES, *JUDGE_TABLES):
        for row in published(table).rows:
            base = row.anchor
            if row.batch_per_gpu == base.batch_per_gpu:
                each = row.samples_per_second / row.gpus * base.gpus / base.samples_per_second
                assert each <= MOST_SUPERLINEAR, row
    left_out = dict(published("nvidia_examples").skipped)
    assert left_out["several GPUs are faster each than the figure that they start from"] > 0


def test_input_workers_are_those_that_the_table_says() -> None:
    starved = [row for row in published("dlperf").rows if row.input_workers == 1]
    assert {row.source for row in starved} == {"DLPerf PyTorch"}
    assert {row.gpus for row in starved} == {8, 16, 32}


def test_named_frameworks_hold_on_sources_left_out() -> None:
    found = score_described()
    assert len(found) > 15
    assert 0.87 <= np.mean([score.inside_interval for score in found.values()]) <= 0.95
    plain = score_points((0,))
    widths = [
        (found[name].median_interval_width, plain[name][0].median_interval_width) for name in found
    ]
    assert np.mean([named for named, _ in widths]) < np.mean([bare for _, bare in widths])


def test_one_odd_source_of_a_framework_does_not_rule_its_next_user() -> None:
    """Where one source has it, all others count as much as that one."""
    named = framework_prior("mindspore")
    own, others = source_weights()["DLPerf MindSpore"], prior_of(list(source_weights().values()))
    assert named == pytest.approx((prior_of([own]) + others) / 2)
    of_horovod = [
        weights for name, weights in source_weights().items()
        if "horovod" in source_frameworks()[name]
    ]  # fmt: skip
    assert framework_prior("horovod") == pytest.approx(0.75 * prior_of(of_horovod) + 0.25 * others)


def test_what_is_explained_agrees_with_figures_that_were_measured() -> None:
    """Eight GPUs that do the work of three: neither are all 32 worth adding, nor would a remedy make up for it."""
    slow = EIGHT | {"samples_per_second": 3 * 103.58}
    made = scenario(ONE, slow)
    *_, largest = predicted(made, 8, 32).predictions
    why = explain(made, largest)
    knee = why.knee.as_it_is
    assert knee.gpus < 8
    assert knee.scaling_efficiency > 0.5
    for remedy in why.remedies:
        if not remedy.adds_gpus:
            expected = remedy.gain * largest.samples_per_second
            assert remedy.samples_per_second == pytest.approx(expected), remedy.what
    said = " ".join(why.sentences)
    assert "0 % of that hides" not in said
    assert "the rest was measured, and no formula explains it" in said
    plain = scenario(ONE)
    (unmeasured,) = predicted(plain, 32).predictions
    of_formulas = next(x for x in explain(plain, unmeasured).sentences if "The choke is" in x)
    assert of_formulas in why.sentences


def test_gpus_that_cannot_reach_each_other_exchange_through_the_host() -> None:
    def seconds(**more: object) -> float:
        machine = {"gpu": "v100-sxm2-16gb", "gpus": 8, "topology": "nvlink-hybrid-cube-mesh"}
        cluster = Cluster.model_validate({"name": "one", "machine": machine | more})
        made = scenario_of(scenario(ONE).workload, models().get("bert-base"), cluster)
        (only,) = predicted(made, made.platform.gpus_per_node).predictions
        return only.step.exposed_communication_seconds

    assert seconds(peer_to_peer=True) == seconds()
    assert seconds(peer_to_peer=False) > 5 * seconds()
    # links of their own carry nothing then, however they are laid
    meshed = {"gpu": "a100-sxm4-40gb", "gpus": 4, "topology": "full-mesh"}
    assert seconds(**meshed, peer_to_peer=False) > 5 * seconds(**meshed)


def test_the_answer_says_that_gpus_go_through_the_host(cli: Cli, tmp_path: Path) -> None:
    def asked(peers: str, *more: str) -> str:
        machine = f"{{gpu: v100-sxm2-16gb, gpus: 8, topology: nvlink-hybrid-cube-mesh{peers}}}"
        file = tmp_path / "one.cluster.yaml"
        file.write_text(f"name: one\nmachine: {machine}\n")
        return " ".join(cli("predict", "resnet50", "--on", str(file), *more).stdout.split())

    off = ", peer_to_peer: false"
    said = "Peer to peer: off in the machines of one, as its file says: their GPUs exchange through the host's memory"
    assert said in asked(off, "--gpus", "1,8")
    assert said in asked(off, "--gpus", "8", "--on", "8xrtx-4090")
    assert json.loads(asked(off, "--gpus", "8", "--json"))["peer_note"].startswith(said)
    assert "Peer to peer" not in asked("", "--gpus", "8")
    assert "Peer to peer" not in asked(off, "--gpus", "1")  # alone, a GPU exchanges nothing


def test_sources_that_are_in_no_fit_are_held_with_none_one_and_two_figures() -> None:
    found = score_points((0, 1, 2), JUDGE_TABLES)
    assert not set(found) & set(spread_sources())
    held = [
        np.mean([score.inside_interval for score in scores])
        for scores in zip(*found.values(), strict=True)
    ]
    assert min(held) >= 0.87
    page = (Path(__file__).parents[2] / "docs" / "validation.md").read_text(encoding="utf-8")
    said = [f"{100 * share:.0f} %" for share in held]
    assert f"with one figure {said[1]} of their rows are inside, with two {said[2]}" in page


def test_flows_that_carry_as_much_as_the_wire_do_not_wait_for_the_slowest() -> None:
    """Amazon caps one flow at 10 Gbit/s, and NCCL opens 16: then the wire is what a machine sends over."""
    tcp, wire, nodes = np.array([True]), np.array([25e9 / 8]), np.array([4.0])
    tuning = fitted()

    def rate(flows: float) -> float:
        cap = np.array([flows * 10e9 / 8])
        return float(between_rate(wire, tcp, cap, nodes, tuning)[0])

    assert rate(16) == rate(np.inf) > rate(1)
    (amazon,) = {one.flows for one in instance_networks() if one.per_flow_gbit_per_second}
    assert amazon == 16
    assert instance_networks().get("aws/g5.12xlarge").network.flows == 16


@pytest.mark.parametrize("table", ["horovod", "mlperf_logs", "lab"])
def test_figures_of_any_one_table_can_be_put_to_work(table: str) -> None:
    found = report(table, (0, 1))
    assert set(found.points) == set(found.training.sources)


def test_a_source_is_also_judged_by_a_stretch_in_which_it_had_no_say() -> None:
    found = validate(("dlperf",))
    assert set(found.nested) == set(
        found.sources
    )  # and not only those that others would stretch otherwise
    odd = "DLPerf Paddle"
    assert found.nested[odd] < 0.75 <= (found.sources[odd].score.inside_interval or 0.0)
    assert min(found.nested, key=lambda name: found.nested[name]) == odd
    assert found.nested_average < (found.by_source.inside_interval or 0.0)


def test_the_stretch_without_a_source_is_chosen_on_fits_that_had_no_part_of_it() -> None:
    # a fit without a source is narrower, so that the others ask for more of a stretch than beside it
    shipped, nested = spread("DLPerf Paddle"), nested_spreads()["DLPerf Paddle"]
    assert 0.65 * shipped.tax < nested.tax < shipped.tax
