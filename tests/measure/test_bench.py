"""The behavior that all benches share."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.measure.bench import measure
from gpuyard.measure.links.records import LinkBench
from gpuyard.measure.progress import ProgressCallback, ProgressMeter, ProgressUpdate
from gpuyard.measure.registry import RESULT_KINDS
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.validity import OtherLoad, _CoreTimes, _read_own_cpu_seconds
from gpuyard.report.answer import Sentence, Table, Text
from gpuyard.report.answers.results import record_answer, records_answer
from tests.conftest import ROOT
from tests.measure.conftest import MakeBench


class TinyPlan:
    used_cores: Sequence[int] = (0,)

    def __init__(self, record: LinkBench) -> None:
        self.record = record

    def describe(self) -> dict[str, Any]:
        return {}

    def build_table(self) -> Table:
        return Table("", [], [])


def run(plan: TinyPlan, on_progress: ProgressCallback) -> LinkBench:
    on_progress(ProgressUpdate("one link", 1.0, 1.0))
    return plan.record


@pytest.mark.parametrize(
    ("share", "doubt"),
    [(None, None), (0.02, None), (0.4, "other programs used 40% of the cores")],
)
def test_every_record_is_stored_with_its_doubt(
    share: float | None,
    doubt: str | None,
    store: ResultsStore,
    make_bench: MakeBench,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(OtherLoad, "share", lambda _self: share)
    updates: list[ProgressUpdate] = []
    record = measure(TinyPlan(make_bench()), run, store, updates.append)
    assert record.doubt == doubt
    assert store.records(LinkBench) == [record]
    assert [update.description for update in updates] == ["one link"]


def test_a_doubt_is_listed_and_shown(make_bench: MakeBench) -> None:
    busy = "other programs used 40% of the cores"
    benches = [make_bench(1), make_bench(2).model_copy(update={"doubt": busy})]
    (table,) = records_answer(RESULT_KINDS["links"], benches).parts
    assert isinstance(table, Table)
    assert table.columns[-1] == "doubt"
    assert [row[-1] for row in table.rows] == ["", Text(busy, "caution")]
    (plain,) = records_answer(RESULT_KINDS["links"], benches[:1]).parts
    assert isinstance(plain, Table)
    assert "doubt" not in plain.columns
    sentence = record_answer(benches[1]).parts[-1]
    assert isinstance(sentence, Sentence)
    assert busy in sentence.text


def test_own_processes_are_not_other_load_even_after_they_exit() -> None:
    burn = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    load = OtherLoad([0])
    monotonic = iter((0.0, 1.0))
    cpu = iter((100.0, 100.6))
    load._read_times = lambda: _CoreTimes(next(monotonic), next(cpu), 0.2, own_seconds())  # type: ignore[method-assign]
    load.begin()
    subprocess.run([sys.executable, "-c", burn], check=True)
    share = load.share()
    assert share is not None
    assert share < 0.15  # of 0.6 s the child used 0.5 s and more


def own_seconds() -> float:
    return _read_own_cpu_seconds([os.getpid()])


def test_processes_of_a_machine_on_this_host_are_own_load() -> None:
    """A lab's machine is no child of this process."""
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True); time.sleep(1000)"
    start = f'setsid "{sys.executable}" -c "{burn}" & echo $!'
    with subprocess.Popen(["sh", "-c", start], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = int(process.stdout.readline())
        try:
            assert process.stdout.readline() == "done\n"
            others = own_seconds()
            assert _read_own_cpu_seconds([os.getpid(), first]) >= others + 0.25
        finally:
            os.kill(first, signal.SIGKILL)


def test_the_busy_share_of_the_cores_includes_interrupts() -> None:
    load = OtherLoad([0, 1])
    times = iter((_CoreTimes(0.0, 10.0, 5.0, 0.0), _CoreTimes(1.0, 11.0, 5.8, 1.0)))
    load._read_times = lambda: next(times)  # type: ignore[method-assign]
    load.begin()
    assert load.busy_share() == pytest.approx(0.9)
    assert OtherLoad([]).busy_share() is None


def test_all_kinds_are_complete_and_documented() -> None:
    documented = (ROOT / "docs/measure.md").read_text(encoding="utf-8")
    for name, kind in RESULT_KINDS.items():
        assert kind.record.model_fields["kind"].default == name
        assert kind.build_table([]).rows == []
        assert kind.command.startswith("gpuyard ")
        assert f"`{name}`" in documented


def test_a_meter_with_estimates_uses_them_until_a_task_has_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("gpuyard.measure.progress.time.monotonic", lambda: now)
    meter = ProgressMeter({"a": 10.0, "b": 10.0, "stored": 50.0})
    meter.skip("stored")
    assert meter.advance("a", 0.5, "half of a") == ProgressUpdate("half of a", 1.5, 3, 15.0)
    now = 120.0
    # it took twice as long as estimated
    assert meter.advance("a", 1.0, "a") == ProgressUpdate("a", 2.0, 3, 20.0)
    assert meter.advance("a", 0.0, "again").done == 1.0


def test_a_meter_without_estimates_has_none_before_something_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("gpuyard.measure.progress.time.monotonic", lambda: now)
    meter = ProgressMeter(range(4))
    assert meter.advance(0, 0.0, "first").remaining_seconds is None
    now = 3.0
    assert meter.advance(0, 1.0, "first") == ProgressUpdate("first", 1.0, 4, 9.0)


@given(st.lists(st.tuples(st.integers(0, 4), st.floats(0, 1)), max_size=30))
def test_remaining_time_is_never_negative(updates: list[tuple[int, float]]) -> None:
    meter = ProgressMeter(dict.fromkeys(range(5), 2.0))
    for task, fraction in updates:
        progress = meter.advance(task, fraction, "")
        assert 0 <= progress.done <= 5
        assert progress.remaining_seconds is not None
        assert progress.remaining_seconds >= 0
