"""Tests of the study charts: they show its numbers, keep their colors, and are plain JSON."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gpuyard.catalog.transformers import transformers
from gpuyard.hardware.clusters import read_cluster
from gpuyard.predictor.large.prediction import predict_large
from gpuyard.predictor.large.training import LargeTraining
from gpuyard.report.figures.cost_curves import build_break_even_chart
from gpuyard.report.figures.epoch_time import build_epoch_time_chart
from gpuyard.report.figures.frame import ChartOptions, choose_log_ticks
from gpuyard.report.figures.large import build_step_chart
from gpuyard.report.figures.marks import assign_styles
from gpuyard.report.figures.points import choose_reference_batch, list_batches
from gpuyard.report.figures.scaling import build_efficiency_chart, build_throughput_chart
from gpuyard.report.figures.step_split import build_step_split_chart
from gpuyard.study.result import StudyResult, WorkloadResult
from tests.report.builder import APOLLO, BATCH, BATCHES, CLOUD, HERE, cost, study, workload


def find_series(option: ChartOptions, name: str) -> list[ChartOptions]:
    return [series for series in option["series"] if series["name"] == name]


def build_all_charts(result: StudyResult) -> list[ChartOptions]:
    styles = assign_styles(result)
    options = [build_break_even_chart(result.cost)] if result.cost else []
    for tested in result.workloads:
        for batch in list_batches(tested):
            options.append(build_throughput_chart(tested, batch, styles))
            options.append(build_efficiency_chart(tested, batch, styles))
            options.append(build_step_split_chart(tested, batch))
        options.append(build_epoch_time_chart(tested, styles))
    return options


@pytest.fixture
def linear(result: StudyResult) -> WorkloadResult:
    return result.workloads[0]


def test_every_option_is_plain_json_with_a_description(result: StudyResult) -> None:
    options = build_all_charts(result)
    assert len(options) == 1 + 2 * (3 * len(BATCHES) + 1)
    for option in options:
        assert json.loads(json.dumps(option, allow_nan=False)) == option
        assert option["aria"]["enabled"] is True
        assert option["aria"]["label"]["description"]
        assert option["title"]["text"]
        assert "saveAsImage" in option["toolbox"]["feature"]
        assert {entry["name"] for entry in option["legend"]["data"]} <= {
            series["name"] for series in option["series"]
        }


def test_throughput_shows_measured_dots_with_their_interval(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = build_throughput_chart(linear, BATCH, assign_styles(result))
    (dots,) = find_series(option, f"{HERE}, measured")
    points = [p for p in linear.measured if p.batch_per_worker == BATCH]
    assert dots["type"] == "scatter"
    assert dots["data"] == [[str(p.workers), p.samples_per_second] for p in points]
    assert dots["markLine"]["data"] == [
        [{"coord": [str(p.workers), p.low]}, {"coord": [str(p.workers), p.high]}] for p in points
    ]


def test_throughput_shows_a_dashed_curve_with_a_band_for_each_platform(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = build_throughput_chart(linear, BATCH, assign_styles(result))
    assert option["xAxis"]["data"] == ["1", "2", "4", "8", "16", "32"]
    for curve in linear.curves:
        line, low, height = find_series(option, f"{curve.platform}, predicted")
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
    """An area that is stacked on an empty value would drop to the axis."""
    apollo = linear.curves[1]
    ends = (apollo.predictions[0], apollo.predictions[3])
    curves = (linear.curves[0], replace(apollo, predictions=ends))
    option = build_throughput_chart(replace(linear, curves=curves), BATCH, assign_styles(result))
    assert "2" in option["xAxis"]["data"] and "4" in option["xAxis"]["data"]
    _, low, height = find_series(option, f"{APOLLO}, predicted")
    assert [x for x, _ in low["data"]] == [x for x, _ in height["data"]] == ["1", "8"]


def test_a_platform_with_another_batch_size_is_drawn_and_labeled(
    result: StudyResult, linear: WorkloadResult
) -> None:
    here, apollo, cloud = linear.curves
    larger = tuple(replace(p, batch_per_gpu=256) for p in apollo.predictions)
    small = tuple(replace(p, fits=False) for p in cloud.predictions)
    curves = (here, replace(apollo, predictions=larger), replace(cloud, predictions=small))
    tested = replace(linear, curves=curves, batch_per_gpu=BATCH)
    option = build_throughput_chart(tested, BATCH, assign_styles(result))
    assert find_series(option, f"{APOLLO} (batch 256), predicted")
    assert not find_series(option, f"{CLOUD}, predicted")  # does not fit
    assert choose_reference_batch(tested) == BATCH
    assert list_batches(tested) == (*BATCHES, 256)


def test_doubtful_runs_are_pale(result: StudyResult, linear: WorkloadResult) -> None:
    measured = tuple(replace(p, doubt="noise") if p.workers == 2 else p for p in linear.measured)
    tested = replace(linear, measured=measured)
    for draw in (build_throughput_chart, build_efficiency_chart):
        (dots,) = find_series(draw(tested, BATCH, assign_styles(result)), f"{HERE}, measured")
        first, second, third = dots["data"]
        assert isinstance(first, list) and isinstance(third, list)
        assert second["itemStyle"]["opacity"] < 0.5 and second["value"][0] == "2"


def test_ideal_scaling_is_one_gpu_times_the_number_of_gpus(
    result: StudyResult, linear: WorkloadResult
) -> None:
    ideals = find_series(
        build_throughput_chart(linear, BATCH, assign_styles(result)), "ideal scaling"
    )
    assert len(ideals) == 3
    apollo = linear.curves[1].predictions
    assert ideals[1]["data"] == pytest.approx(
        [p.gpus * apollo[0].samples_per_second for p in apollo]
    )
    assert ideals[1]["lineStyle"]["type"] == "dotted"


def test_a_batch_that_was_only_measured_has_no_curve(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = build_throughput_chart(linear, 200, assign_styles(result))
    assert {series["name"] for series in option["series"]} == {f"{HERE}, measured", "ideal scaling"}
    assert option["xAxis"]["data"] == ["1", "2", "4"]


def test_only_an_unusual_strategy_is_named() -> None:
    tested = workload("mixed")
    other = tuple(replace(p, strategy="dataparallel") for p in tested.curves[2].predictions)
    curves = (*tested.curves[:2], replace(tested.curves[2], predictions=other))
    result = study(replace(tested, curves=curves))
    option = build_throughput_chart(result.workloads[0], BATCH, assign_styles(result))
    names = {entry["name"] for entry in option["legend"]["data"]}
    assert f"{CLOUD} (dataparallel), predicted" in names
    assert f"{APOLLO}, predicted" in names


def test_efficiency_is_in_percent(result: StudyResult, linear: WorkloadResult) -> None:
    option = build_efficiency_chart(linear, BATCH, assign_styles(result))
    (dots,) = find_series(option, f"{HERE}, measured")
    assert dots["data"][0] == ["1", 100.0]
    (line,) = find_series(option, f"{CLOUD}, predicted")
    predicted = [100 * p.scaling_efficiency for p in linear.curves[2].predictions]
    assert line["data"][:5] == pytest.approx(predicted, abs=0.01)
    assert option["yAxis"]["max"] == 100


def test_the_efficiency_axis_grows_for_values_above_100_percent() -> None:
    tested = workload("caches")
    points = tuple(replace(p, scaling_efficiency=1.13) for p in tested.measured)
    result = study(replace(tested, measured=points))
    option = build_efficiency_chart(result.workloads[0], BATCH, assign_styles(result))
    assert option["yAxis"]["max"] == 120


def test_efficiency_omits_points_without_a_run_on_one_worker() -> None:
    tested = workload("two only")
    points = tuple(replace(p, scaling_efficiency=None) for p in tested.measured)
    result = study(replace(tested, measured=points, curves=()))
    assert build_efficiency_chart(result.workloads[0], BATCH, assign_styles(result))["series"] == []


def test_the_parts_of_a_step_add_up_to_100_percent(linear: WorkloadResult) -> None:
    option = build_step_split_chart(linear, BATCH)
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
    option = build_step_split_chart(linear, BATCH)
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
    tested = workload("evil")
    curves = tuple(replace(curve, platform="<img src=x>") for curve in tested.curves)
    epochs = tuple(replace(epoch, platform="<img src=x>") for epoch in tested.epoch_times)
    result = study(replace(tested, curves=curves, epoch_times=epochs))
    split = build_step_split_chart(result.workloads[0], BATCH)
    epoch_time = build_epoch_time_chart(result.workloads[0], assign_styles(result))
    texts = list(_formatters([split["series"], epoch_time["series"]]))
    assert any("&lt;img src=x&gt;" in text for text in texts)
    assert not any("<img" in text for text in texts)


def _formatters(value: Any) -> list[str]:
    if isinstance(value, dict):
        formatter = [value["formatter"]] if "formatter" in value else []
        return formatter + [text for item in value.values() for text in _formatters(item)]
    if isinstance(value, list):
        return [text for item in value for text in _formatters(item)]
    return []


def test_measured_epoch_times_are_dots_and_others_are_lines(
    result: StudyResult, linear: WorkloadResult
) -> None:
    option = build_epoch_time_chart(linear, assign_styles(result))
    dots = find_series(option, f"{HERE}, measured")
    assert [len(series["data"]) for series in dots] == [len(BATCHES)] * 3
    assert {series["type"] for series in dots} == {"scatter"}
    (line,) = find_series(option, f"{APOLLO}, predicted")
    expected = [e for e in linear.epoch_times if e.platform == APOLLO]
    assert [point["value"] for point in line["data"]] == [
        [e.batch_per_gpu, e.seconds] for e in expected
    ]
    assert line["lineStyle"]["type"] == "dashed"
    assert line["endLabel"]["formatter"] == "32 GPUs"
    (fitted,) = find_series(option, f"{HERE}, fitted")
    assert fitted["lineStyle"]["type"] == "solid"
    assert (option["xAxis"]["min"], option["xAxis"]["max"]) == (10, 600)


def test_labels_at_the_ends_of_lines_do_not_overlap() -> None:
    tested = workload("close")
    ends = {
        platform: tuple(e for e in tested.epoch_times if e.platform == platform)
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
    result = study(replace(tested, epoch_times=close))
    option = build_epoch_time_chart(result.workloads[0], assign_styles(result))
    labels = [line["endLabel"]["offset"][1] for line in option["series"] if "endLabel" in line]
    assert len(labels) == 2
    assert max(labels) - min(labels) > 10


def test_long_epochs_are_in_hours() -> None:
    tested = workload("long")
    epochs = tuple(replace(e, seconds=e.seconds * 1e6) for e in tested.epoch_times)
    result = study(replace(tested, epoch_times=epochs))
    option = build_epoch_time_chart(result.workloads[0], assign_styles(result))
    assert option["yAxis"]["name"].startswith("hours")
    assert option["series"][0]["data"][0]["value"][1] == pytest.approx(epochs[0].seconds / 3600)


def test_break_even_marks_both_crossings() -> None:
    figures = cost()
    option = build_break_even_chart(figures)
    rent, buy = option["series"]
    assert rent["data"][0] == [0.0, 0.0]
    assert rent["data"][-1] == pytest.approx([4.0, 12_000.0])
    assert {usd for _, usd in buy["data"]} == {8000}
    assert buy["markPoint"]["data"][0]["coord"] == pytest.approx([8 / 3, 8000])
    # marked on the renting line, because nobody can buy the machine for $5,600
    assert rent["markPoint"]["data"][0]["coord"] == pytest.approx([5600 / 3000, 5600])
    assert rent["markPoint"]["label"]["formatter"] == "1.9 years\n3,733 h\nprice less 30%"


def test_break_even_without_a_speed_lead_has_one_crossing() -> None:
    option = build_break_even_chart(cost(speed_lead=0.0))
    assert "markPoint" not in option["series"][0]
    assert "lead" not in option["aria"]["label"]["description"]


def test_a_platform_has_the_same_color_in_all_charts(result: StudyResult) -> None:
    styles = assign_styles(result)
    assert list(styles) == [HERE, APOLLO, CLOUD]
    assert len({style.color for style in styles.values()}) == 3
    assert len({style.symbol for style in styles.values()}) == 3
    for tested in result.workloads:
        for option in (
            build_throughput_chart(tested, BATCH, styles),
            build_efficiency_chart(tested, BATCH, styles),
            build_epoch_time_chart(tested, styles),
        ):
            for platform, style in styles.items():
                for series in find_series(option, f"{platform}, predicted"):
                    assert series["itemStyle"]["color"] == style.color


def test_no_two_of_many_platforms_look_alike() -> None:
    tested = workload("many")
    curves = tuple(replace(tested.curves[1], platform=f"cluster {i}") for i in range(30))
    styles = assign_styles(study(replace(tested, measured=(), curves=curves, epoch_times=())))
    assert len({(style.color, style.symbol) for style in styles.values()}) == 30


def test_the_batch_that_was_predicted_is_shown_first(linear: WorkloadResult) -> None:
    assert list_batches(linear) == BATCHES
    assert choose_reference_batch(linear) == BATCH
    assert choose_reference_batch(replace(linear, measured=(), curves=())) is None


def test_non_finite_values_are_omitted() -> None:
    tested = workload("odd")
    curve = tested.curves[1]
    broken = replace(curve.predictions[2], samples_per_second=float("nan"), high=float("inf"))
    predictions = (*curve.predictions[:2], broken, *curve.predictions[3:])
    result = study(replace(tested, curves=(replace(curve, predictions=predictions),)))
    option = build_throughput_chart(result.workloads[0], BATCH, assign_styles(result))
    json.dumps(option, allow_nan=False)
    assert find_series(option, f"{APOLLO}, predicted")[0]["data"][2] is None


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
    assert choose_log_ticks(values) == ticks


@pytest.mark.parametrize("model", ["llama-3-8b", "mixtral-8x7b"])
def test_the_parts_of_a_large_models_step_add_up_in_different_colors(model: str) -> None:
    training = LargeTraining(model, transformers().get(model).shape)
    predictions = predict_large(training, read_cluster("4x8xh100@100G"), [8, 32]).predictions
    series = build_step_chart(predictions)["series"]
    assert len({part["color"] for part in series}) == len(series)
    for index, prediction in enumerate(predictions):
        assert sum(part["data"][index] for part in series) == pytest.approx(
            prediction.step_seconds, abs=0.005
        )
