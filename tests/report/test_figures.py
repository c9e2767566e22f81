"""The charts show the numbers of the study, in the same colours everywhere, and are plain JSON."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuyard.report.figures.cost_curves import break_even_option
from gpuyard.report.figures.epoch_time import epoch_time_option
from gpuyard.report.figures.frame import Option, log_ticks
from gpuyard.report.figures.marks import looks_of
from gpuyard.report.figures.points import batches_of, reference_batch
from gpuyard.report.figures.scaling import efficiency_option, throughput_option
from gpuyard.report.figures.step_split import step_split_option
from gpuyard.study.result import StudyResult, WorkloadResult
from tests.report.builder import APOLLO, BATCH, BATCHES, CLOUD, HERE, cost, study, workload


def named(option: Option, name: str) -> list[Option]:
    return [one for one in option["series"] if one["name"] == name]


def all_options(result: StudyResult) -> list[Option]:
    looks = looks_of(result)
    options = [break_even_option(result.cost)] if result.cost else []
    for one in result.workloads:
        for batch in batches_of(one):
            options.append(throughput_option(one, batch, looks))
            options.append(efficiency_option(one, batch, looks))
            options.append(step_split_option(one, batch))
        options.append(epoch_time_option(one, looks))
    return options


@pytest.fixture
def linear(result: StudyResult) -> WorkloadResult:
    return result.workloads[0]


def test_every_option_is_plain_json_with_a_description(result: StudyResult) -> None:
    options = all_options(result)
    assert len(options) == 1 + 2 * (3 * len(BATCHES) + 1)
    for option in options:
        assert json.loads(json.dumps(option, allow_nan=False)) == option
        assert option["aria"]["enabled"] is True
        assert option["aria"]["label"]["description"]
        assert option["title"]["text"]
        assert "saveAsImage" in option["toolbox"]["feature"]
        assert {entry["name"] for entry in option["legend"]["data"]} <= {
            one["name"] for one in option["series"]
        }


def test_throughput_shows_measured_dots_with_their_interval(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = throughput_option(linear, BATCH, looks_of(result))
    (dots,) = named(option, f"{HERE}, measured")
    points = [p for p in linear.measured if p.batch_per_worker == BATCH]
    assert dots["type"] == "scatter"
    assert dots["data"] == [[str(p.workers), p.samples_per_second] for p in points]
    assert dots["markLine"]["data"] == [
        [{"coord": [str(p.workers), p.low]}, {"coord": [str(p.workers), p.high]}] for p in points
    ]


def test_throughput_shows_a_dashed_curve_in_its_band_for_each_platform(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = throughput_option(linear, BATCH, looks_of(result))
    assert option["xAxis"]["data"] == ["1", "2", "4", "8", "16", "32"]
    for curve in linear.curves:
        line, low, height = named(option, f"{curve.platform}, predicted")
        count = len(curve.predictions)
        assert line["lineStyle"]["type"] == "dashed"
        assert line["data"][:count] == [p.samples_per_second for p in curve.predictions]
        assert line["data"][count:] == [None] * (6 - count)
        assert low["data"] == [[str(p.gpus), p.low] for p in curve.predictions]
        assert height["data"] == [[str(p.gpus), p.high - p.low] for p in curve.predictions]
        assert low["stack"] == height["stack"]
        assert low["tooltip"] == height["tooltip"] == {"show": False}


def test_a_band_has_no_points_where_nothing_was_predicted(
    result: StudyResult, linear: WorkloadResult
) -> None:
    """What is stacked on an empty value plunges to the axis."""
    apollo = linear.curves[1]
    ends = (apollo.predictions[0], apollo.predictions[3])
    curves = (linear.curves[0], replace(apollo, predictions=ends))
    option = throughput_option(replace(linear, curves=curves), BATCH, looks_of(result))
    assert "2" in option["xAxis"]["data"] and "4" in option["xAxis"]["data"]
    _, low, height = named(option, f"{APOLLO}, predicted")
    assert [at for at, _ in low["data"]] == [at for at, _ in height["data"]] == ["1", "8"]


def test_a_platform_with_a_batch_of_its_own_is_drawn_beside_the_others_and_says_so(
    result: StudyResult, linear: WorkloadResult
) -> None:
    here, apollo, cloud = linear.curves
    larger = tuple(replace(p, batch_per_gpu=256) for p in apollo.predictions)
    small = tuple(replace(p, fits=False) for p in cloud.predictions)
    curves = (here, replace(apollo, predictions=larger), replace(cloud, predictions=small))
    one = replace(linear, curves=curves, batch_per_gpu=BATCH)
    option = throughput_option(one, BATCH, looks_of(result))
    assert named(option, f"{APOLLO} (batch 256), predicted")
    assert not named(option, f"{CLOUD}, predicted")  # does not fit
    assert reference_batch(one) == BATCH
    assert batches_of(one) == (*BATCHES, 256)


def test_doubtful_runs_are_pale(result: StudyResult, linear: WorkloadResult) -> None:
    measured = tuple(replace(p, doubt="noise") if p.workers == 2 else p for p in linear.measured)
    one = replace(linear, measured=measured)
    for draw in (throughput_option, efficiency_option):
        (dots,) = named(draw(one, BATCH, looks_of(result)), f"{HERE}, measured")
        first, second, third = dots["data"]
        assert isinstance(first, list) and isinstance(third, list)
        assert second["itemStyle"]["opacity"] < 0.5 and second["value"][0] == "2"


def test_the_ideal_is_one_gpu_times_their_number(
    result: StudyResult, linear: WorkloadResult
) -> None:
    ideals = named(throughput_option(linear, BATCH, looks_of(result)), "ideal scaling")
    assert len(ideals) == 3
    apollo = linear.curves[1].predictions
    assert ideals[1]["data"] == pytest.approx(
        [p.gpus * apollo[0].samples_per_second for p in apollo]
    )
    assert ideals[1]["lineStyle"]["type"] == "dotted"


def test_a_batch_that_was_only_measured_has_no_curve(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = throughput_option(linear, 200, looks_of(result))
    assert {one["name"] for one in option["series"]} == {f"{HERE}, measured", "ideal scaling"}
    assert option["xAxis"]["data"] == ["1", "2", "4"]


def test_only_an_unusual_strategy_is_named() -> None:
    one = workload("mixed")
    other = tuple(replace(p, strategy="dataparallel") for p in one.curves[2].predictions)
    curves = (*one.curves[:2], replace(one.curves[2], predictions=other))
    result = study(replace(one, curves=curves))
    option = throughput_option(result.workloads[0], BATCH, looks_of(result))
    names = {entry["name"] for entry in option["legend"]["data"]}
    assert f"{CLOUD} (dataparallel), predicted" in names
    assert f"{APOLLO}, predicted" in names


def test_efficiency_is_in_percent(result: StudyResult, linear: WorkloadResult) -> None:
    option = efficiency_option(linear, BATCH, looks_of(result))
    (dots,) = named(option, f"{HERE}, measured")
    assert dots["data"][0] == ["1", 100.0]
    (line,) = named(option, f"{CLOUD}, predicted")
    predicted = [100 * p.scaling_efficiency for p in linear.curves[2].predictions]
    assert line["data"][:5] == pytest.approx(predicted, abs=0.01)
    assert option["yAxis"]["max"] == 100


def test_the_efficiency_axis_grows_for_what_is_better_than_ideal() -> None:
    one = workload("caches")
    points = tuple(replace(p, scaling_efficiency=1.13) for p in one.measured)
    result = study(replace(one, measured=points))
    option = efficiency_option(result.workloads[0], BATCH, looks_of(result))
    assert option["yAxis"]["max"] == 120


def test_efficiency_leaves_out_what_was_not_compared_with_one_worker() -> None:
    one = workload("two only")
    points = tuple(replace(p, scaling_efficiency=None) for p in one.measured)
    result = study(replace(one, measured=points, curves=()))
    assert efficiency_option(result.workloads[0], BATCH, looks_of(result))["series"] == []


def test_a_step_is_split_into_all_of_it(linear: WorkloadResult) -> None:
    option = step_split_option(linear, BATCH)
    *parts, totals = option["series"]
    assert [part["name"] for part in parts] == [
        "compute",
        "exposed communication",
        "input",
        "straggling",
    ]
    bars = option["yAxis"]["data"]
    assert len(bars) == 3 + 4 + 6 + 5
    for i in range(len(bars)):
        assert sum(part["data"][i]["value"] for part in parts) == pytest.approx(100)
    assert len(totals["data"]) == len(bars)


def test_measured_and_predicted_steps_stand_side_by_side(linear: WorkloadResult) -> None:
    option = step_split_option(linear, BATCH)
    assert option["yAxis"]["data"][2:4] == [
        f"2 workers, measured\n{HERE}",
        f"2 workers, predicted\n{HERE}",
    ]
    measured, predicted = option["series"][0]["data"][2:4]
    assert "itemStyle" not in measured
    assert "decal" in predicted["itemStyle"]
    point = next(p for p in linear.measured if (p.workers, p.batch_per_worker) == (2, BATCH))
    step = point.compute_seconds + point.exposed_communication_seconds + point.input_seconds
    assert measured["value"] == pytest.approx(100 * point.compute_seconds / step)


def test_markup_in_a_platform_is_escaped_in_tooltips() -> None:
    one = workload("evil")
    curves = tuple(replace(curve, platform="<img src=x>") for curve in one.curves)
    epochs = tuple(replace(epoch, platform="<img src=x>") for epoch in one.epoch_times)
    result = study(replace(one, curves=curves, epoch_times=epochs))
    split = step_split_option(result.workloads[0], BATCH)
    epoch_time = epoch_time_option(result.workloads[0], looks_of(result))
    texts = list(_formatters([split["series"], epoch_time["series"]]))
    assert any("&lt;img src=x&gt;" in text for text in texts)
    assert not any("<img" in text for text in texts)


def _formatters(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["formatter"]] if "formatter" in value else []
        return own + [text for one in value.values() for text in _formatters(one)]
    if isinstance(value, list):
        return [text for one in value for text in _formatters(one)]
    return []


def test_epoch_times_are_dots_where_measured_and_lines_elsewhere(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = epoch_time_option(linear, looks_of(result))
    dots = named(option, f"{HERE}, measured")
    assert [len(one["data"]) for one in dots] == [len(BATCHES)] * 3
    assert {one["type"] for one in dots} == {"scatter"}
    (line,) = named(option, f"{APOLLO}, predicted")
    expected = [e for e in linear.epoch_times if e.platform == APOLLO]
    assert [point["value"] for point in line["data"]] == [
        [e.batch_per_gpu, e.seconds] for e in expected
    ]
    assert line["lineStyle"]["type"] == "dashed"
    assert line["endLabel"]["formatter"] == "32 GPUs"
    (fitted,) = named(option, f"{HERE}, fitted")
    assert fitted["lineStyle"]["type"] == "solid"
    assert (option["xAxis"]["min"], option["xAxis"]["max"]) == (10, 600)


def test_labels_at_the_ends_of_lines_do_not_stand_on_each_other() -> None:
    one = workload("close")
    ends = {
        platform: tuple(e for e in one.epoch_times if e.platform == platform)
        for platform in (APOLLO, CLOUD)
    }
    lines = ends[APOLLO] or ends[CLOUD]
    close = (
        *(replace(e, platform=APOLLO, basis="predicted", gpus=8) for e in lines),
        *(
            replace(e, platform=CLOUD, basis="predicted", gpus=8, seconds=1.02 * e.seconds)
            for e in lines
        ),
    )
    result = study(replace(one, epoch_times=close))
    option = epoch_time_option(result.workloads[0], looks_of(result))
    labels = [line["endLabel"]["offset"][1] for line in option["series"] if "endLabel" in line]
    assert len(labels) == 2
    assert max(labels) - min(labels) > 10


def test_long_epochs_are_in_hours() -> None:
    one = workload("long")
    epochs = tuple(replace(e, seconds=e.seconds * 1e6) for e in one.epoch_times)
    result = study(replace(one, epoch_times=epochs))
    option = epoch_time_option(result.workloads[0], looks_of(result))
    assert option["yAxis"]["name"].startswith("hours")
    assert option["series"][0]["data"][0]["value"][1] == pytest.approx(epochs[0].seconds / 3600)


def test_break_even_marks_both_crossings() -> None:
    figures = cost()
    option = break_even_option(figures)
    rent, buy = option["series"]
    assert rent["data"][0] == [0.0, 0.0]
    assert rent["data"][-1] == pytest.approx([4.0, 12_000.0])
    assert {usd for _, usd in buy["data"]} == {8000}
    assert buy["markPoint"]["data"][0]["coord"] == pytest.approx([8 / 3, 8000])
    # a point of what renting has cost; no line says that the machine is had for $5,600
    assert rent["markPoint"]["data"][0]["coord"] == pytest.approx([5600 / 3000, 5600])
    assert rent["markPoint"]["label"]["formatter"] == "1.9 years\n3,733 h\nprice less 30 %"


def test_break_even_without_a_speed_lead_has_one_crossing() -> None:
    option = break_even_option(cost(speed_lead=0.0))
    assert "markPoint" not in option["series"][0]
    assert "lead" not in option["aria"]["label"]["description"]


def test_a_platform_has_one_colour_in_all_charts(result: StudyResult) -> None:
    looks = looks_of(result)
    assert list(looks) == [HERE, APOLLO, CLOUD]
    assert len({look.colour for look in looks.values()}) == 3
    assert len({look.symbol for look in looks.values()}) == 3
    for one in result.workloads:
        for option in (
            throughput_option(one, BATCH, looks),
            efficiency_option(one, BATCH, looks),
            epoch_time_option(one, looks),
        ):
            for platform, look in looks.items():
                for series in named(option, f"{platform}, predicted"):
                    assert series["itemStyle"]["color"] == look.colour


def test_no_two_of_many_platforms_look_alike() -> None:
    one = workload("many")
    curves = tuple(replace(one.curves[1], platform=f"cluster {i}") for i in range(30))
    looks = looks_of(study(replace(one, measured=(), curves=curves, epoch_times=())))
    assert len({(look.colour, look.symbol) for look in looks.values()}) == 30


def test_the_batch_that_was_predicted_is_shown_first(linear: WorkloadResult) -> None:
    assert batches_of(linear) == BATCHES
    assert reference_batch(linear) == BATCH
    assert reference_batch(replace(linear, measured=(), curves=())) is None


def test_values_that_are_no_numbers_are_left_out() -> None:
    one = workload("odd")
    curve = one.curves[1]
    broken = replace(curve.predictions[2], samples_per_second=float("nan"), high=float("inf"))
    predictions = (*curve.predictions[:2], broken, *curve.predictions[3:])
    result = study(replace(one, curves=(replace(curve, predictions=predictions),)))
    option = throughput_option(result.workloads[0], BATCH, looks_of(result))
    json.dumps(option, allow_nan=False)
    assert named(option, f"{APOLLO}, predicted")[0]["data"][2] is None


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([10, 600], [10, 20, 50, 100, 200, 500, 1000]),
        ([3, 4], [2, 5]),
        ([1], [1, 2]),
        ([], []),
    ],
)
def test_log_ticks_are_round_and_enclose_the_values(
    values: list[float], ticks: list[float]
) -> None:
    assert log_ticks(values) == ticks
