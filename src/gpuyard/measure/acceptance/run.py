"""Runs an acceptance plan phase by phase within its time, and keeps what is measured on disk at once."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gpuyard.errors import GpuyardError
from gpuyard.interpreter import module_argv
from gpuyard.measure.acceptance import pair_worker
from gpuyard.measure.acceptance.judge_speed import choose_references, find_suspects
from gpuyard.measure.acceptance.pairs import merge_rates, plan_rounds
from gpuyard.measure.acceptance.plan import START_SECONDS, AcceptancePlan
from gpuyard.measure.acceptance.records import (
    Acceptance,
    Attempt,
    Inventory,
    NodeSpeed,
    PairRate,
    Phase,
)
from gpuyard.measure.acceptance.state import AcceptanceState, StateFile
from gpuyard.measure.acceptance.verdict import build_acceptance
from gpuyard.measure.acceptance.whole import measure_training, measure_whole
from gpuyard.measure.machine_lock import MachineBusy, hold_measurement_lock
from gpuyard.measure.progress import ProgressCallback, ProgressUpdate
from gpuyard.measure.ranks import launch_ranks
from gpuyard.measure.store import ResultsStore
from gpuyard.run.places import Place
from gpuyard.run.places.hosts import RemoteMachines
from gpuyard.run.probe import NodeSilence, ask_nodes, format_last_lines
from gpuyard.units import format_count

_NODE = "gpuyard.measure.acceptance.node"
_PAIR_WORKER = "gpuyard.measure.acceptance.pair_worker"
_ANSWER_SECONDS = 180.0
_RETRIES = 2
_Answer = TypeVar("_Answer", bound=BaseModel)


def run_acceptance(
    plan: AcceptancePlan,
    store: ResultsStore,
    on_progress: ProgressCallback = lambda _progress: None,
    *,
    fresh: bool = False,
) -> Acceptance:
    """Run all phases that fit into the time, judge the nodes, and store the record.

    A run that was stopped continues; `fresh` starts over.
    """
    run = _Run(plan, store, on_progress, fresh=fresh)
    record = run.run()
    store.add(record)
    run.file.remove()
    return record


class _Run:
    """One run: its plan, the state on disk, and the time that is left."""

    def __init__(
        self,
        plan: AcceptancePlan,
        store: ResultsStore,
        on_progress: ProgressCallback,
        *,
        fresh: bool,
    ) -> None:
        self.plan, self.store, self.on_progress = plan, store, on_progress
        self.file = StateFile(plan.key)
        earlier = None if fresh else self.file.read()
        self.state = earlier or AcceptanceState(key=plan.key, started_at=time.time())
        if earlier is not None:
            done = ", ".join(earlier.done) or "nothing complete"
            self._update(notes=(f"This run continues one that was stopped (done: {done}).",))
        self._before = self.state.elapsed_seconds
        self._start = time.monotonic()

    @property
    def remaining_seconds(self) -> float:
        return self.plan.seconds - self._before - (time.monotonic() - self._start)

    @property
    def reached(self) -> list[int]:
        """The nodes that answered, by index."""
        return [i for i, name in enumerate(self.plan.nodes) if name in self.state.inventories]

    @property
    def shared_machine(self) -> bool:
        """True if nodes share a machine: they would disturb each other, so they run in turn."""
        boots = [inventory.boot_id for inventory in self.state.inventories.values()]
        return self.plan.place.on_this_machine or len(set(boots)) < len(boots)

    def run(self) -> Acceptance:
        phases: dict[Phase, Callable[[], None]] = {
            "inventory": self._read_inventories,
            "alone": self._measure_alone,
            "pairs": self._measure_pairs,
            "all": self._measure_whole,
            "training": self._train,
        }
        for number, phase in enumerate(self.plan.phases):
            if phase in self.state.done:
                continue
            # the parts of the nodes are always read
            if phase != "inventory" and self.remaining_seconds < self._minimum(phase):
                self._leave_out(f"{phase}: the time of the run was over")
                continue
            if phase in ("pairs", "all", "training") and len(self.reached) < 2:
                self._leave_out(f"{phase}: fewer than two nodes answered")
                continue
            self.on_progress(ProgressUpdate(phase, number, len(self.plan.phases)))
            try:
                phases[phase]()
            except MachineBusy:  # the run can continue later
                raise
            except GpuyardError as error:
                if phase == "inventory":
                    raise
                self._update(failures={**self.state.failures, phase: str(error)})
                continue
            self._update(done=(*self.state.done, phase))
        return build_acceptance(self.plan, self.state, shared_machine=self.shared_machine)

    def _minimum(self, phase: Phase) -> float:
        """The time below which a phase is left out: most of it is the start of processes."""
        return min(self.plan.estimate_seconds(phase), START_SECONDS)

    def _scale(self, phase: Phase) -> float:
        """The share of its usual time that a phase gets, so that the later ones fit too."""
        rest = self.plan.phases[self.plan.phases.index(phase) :]
        scale = self.remaining_seconds / sum(map(self.plan.estimate_seconds, rest))
        if scale < 1:
            self._update(notes=(*self.state.notes, f"{phase}: shortened to fit into the time."))
        return max(0.2, min(1.0, scale))

    def _update(self, **changes: object) -> None:
        elapsed = {}
        if hasattr(self, "_start"):
            elapsed["elapsed_seconds"] = self._before + time.monotonic() - self._start
        self.state = self.state.model_copy(update={**elapsed, **changes})
        self.file.write(self.state)

    def _leave_out(self, what: str) -> None:
        self._update(left_out=(*self.state.left_out, what))

    def _read_inventories(self) -> None:
        answers = ask_nodes(
            self.plan.place,
            (*module_argv(_NODE), "inventory"),
            range(len(self.plan.nodes)),
            _ANSWER_SECONDS,
        )
        inventories, unreachable = {}, {}
        for name, (_, answer) in zip(self.plan.nodes, answers, strict=True):
            parsed = _parse(answer, Inventory)
            if isinstance(parsed, str):
                unreachable[name] = parsed
            else:
                inventories[name] = parsed
        if not inventories:
            name, reason = next(iter(unreachable.items()))
            raise GpuyardError(
                f"no node answers; check that they are reachable and have gpuyard at the same path as this "
                f"machine. The output of {name}:\n{reason}"
            )
        self._update(inventories=inventories, unreachable=unreachable)

    def _measure_alone(self) -> None:
        scale = self._scale("alone")
        storage = None if self.shared_machine else self.plan.storage
        settings = {
            "seconds": self.plan.gemm_seconds * scale,
            "storage": storage,
            "storage_bytes": int(self.plan.storage_bytes * scale),
            "shared_machine": self.shared_machine,
        }
        argv = (*module_argv(_NODE), "speed", json.dumps(settings))
        with hold_measurement_lock():
            while len(self.state.attempts) <= _RETRIES:
                suspects = find_suspects(self.state.attempts)
                references: list[str] = []
                nodes = [self.plan.nodes[i] for i in self.reached]
                if self.state.attempts:
                    if not suspects or self.remaining_seconds < START_SECONDS:
                        break
                    references = choose_references(self.state.attempts, suspects)
                    nodes = [name for name in nodes if name in (*suspects, *references)]
                speeds = self._ask_speeds(argv, nodes)
                attempt = Attempt(speeds=speeds, references=tuple(references))
                self._update(attempts=(*self.state.attempts, attempt))

    def _ask_speeds(self, argv: Sequence[str], nodes: Sequence[str]) -> dict[str, NodeSpeed]:
        """Measure nodes at once, or in turn if they share a machine."""
        indexes = [self.plan.nodes.index(name) for name in nodes]
        groups = [[index] for index in indexes] if self.shared_machine else [indexes]
        speeds = {}
        for number, group in enumerate(groups):
            self.on_progress(ProgressUpdate("nodes alone", number, len(groups)))
            for index, (_, answer) in zip(
                group, ask_nodes(self.plan.place, argv, group, _ANSWER_SECONDS), strict=True
            ):
                parsed = _parse(answer, NodeSpeed)
                if isinstance(parsed, str):
                    self._give_up(self.plan.nodes[index], parsed)
                else:
                    speeds[self.plan.nodes[index]] = parsed
        return speeds

    def _give_up(self, node: str, reason: str) -> None:
        """Leave a node out of the later phases, which would wait for it."""
        others = {n: parts for n, parts in self.state.inventories.items() if n != node}
        unreachable = {**self.state.unreachable, node: reason}
        self._update(inventories=others, unreachable=unreachable)

    def _measure_pairs(self) -> None:
        message_bytes = int(self.plan.message_bytes * self._scale("pairs")) // 4 * 4
        place = self._select()
        expected = self.plan.promise.link_bytes_per_second
        measured = {(rate.a, rate.b) for rate in self.state.rates}
        planned = [pair for pairs in plan_rounds(len(self.reached)) for pair in pairs]
        dilation = place.dilation
        job = partial(
            pair_worker.PairsJob,
            device="cuda" if all(place.gpus_by_node) else "cpu",
            pairs=tuple(pair for pair in planned if pair not in measured),
            known=tuple(_scale_rate(rate, 1 / dilation) for rate in self.state.rates),
            message_bytes=message_bytes,
            repeats=self.plan.pair_repeats,
            retries=_RETRIES,
            expected_bytes_per_second=None if expected is None else expected / dilation,
            one_at_a_time=self.shared_machine,
        )
        cores = place.cores_by_worker(len(self.reached), computing=False)
        done = len(measured)
        with (
            hold_measurement_lock(),
            launch_ranks(
                place, cores, job, worker=_PAIR_WORKER, read=pair_worker.read_event
            ) as events,
        ):
            for event in events:
                rates = [_scale_rate(rate, dilation) for rate in event.rates]
                self._update(rates=tuple(merge_rates([*self.state.rates, *rates])))
                done += 0 if event.again else len(rates)
                what = "slow pairs again" if event.again else "pairs"
                self.on_progress(ProgressUpdate(what, done, len(planned)))

    def _measure_whole(self) -> None:
        whole, bisected = measure_whole(
            self.plan,
            self._select_for_gpus(),
            self.state.rates,
            self.store,
            self.on_progress,
            names=[self.plan.nodes[i] for i in self.reached],
            has_time=lambda: self.remaining_seconds > START_SECONDS,
        )
        self._update(whole=whole, bisected=bisected)

    def _train(self) -> None:
        seconds = self.plan.training_seconds * self._scale("training")
        training = measure_training(
            self.plan, self._select_for_gpus(), self.store, self.on_progress, seconds
        )
        self._update(training=training)

    def _select(self) -> Place:
        """The nodes that answered, with one rank each."""
        return self._select_with([1] * len(self.reached))

    def _select_with(self, slots: Sequence[int]) -> Place:
        place = self.plan.place.select(self.reached, slots)
        if isinstance(place, RemoteMachines):
            names = (self.plan.nodes[i] for i in self.reached)
            gpus = tuple(self.state.inventories[name].torch_gpus for name in names)
            return replace(place, gpus=gpus)
        return place

    def _select_for_gpus(self) -> Place:
        """The nodes that answered, with one rank for each GPU that torch can use, or one without GPUs."""
        counts = [len(self.state.inventories[self.plan.nodes[i]].torch_gpus) for i in self.reached]
        if not all(counts) or self.plan.place.on_this_machine:
            return self._select()
        return self._select_with([min(counts)] * len(counts))


def _scale_rate(rate: PairRate, factor: float) -> PairRate:
    """Convert a rate between the emulated cluster and its dilated emulation."""
    return rate.model_copy(
        update={"forward": rate.forward * factor, "backward": rate.backward * factor}
    )


def _parse(answer: object, kind: type[_Answer]) -> _Answer | str:
    """Return a node's answer, or the last lines of its output."""
    if isinstance(answer, NodeSilence):
        return f"  no answer within {format_count(int(answer.seconds), 'second')}"
    output, errors = answer.output, answer.errors  # type: ignore[attr-defined]
    for line in reversed(output.splitlines()):  # a host's banner may precede it
        try:
            return kind.model_validate_json(line)
        except ValidationError:
            continue
    return format_last_lines(errors + output)
