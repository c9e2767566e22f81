"""Real ranks, real collectives: right results, in the store, and nothing left behind."""

import csv
import io
import json
import shutil
from collections.abc import Sequence

import pytest
import torch

from gpuyard.choices import Collective
from gpuyard.errors import GpuyardError, MissingRequirement
from gpuyard.measure.collectives.exchange import Exchange
from gpuyard.measure.collectives.plan import OPERATIONS, check_mpi, plan_collectives
from gpuyard.measure.collectives.records import CollectivesBench
from gpuyard.measure.collectives.run import run_collectives
from gpuyard.measure.collectives.tables import COLLECTIVES
from gpuyard.measure.kind import to_json_lines
from gpuyard.measure.progress import ProgressUpdate
from gpuyard.measure.store import ResultsStore
from gpuyard.measure.training.records import Measurement
from gpuyard.run.places import LocalMachine
from tests.conftest import Cli


def test_two_ranks_over_gloo(store: ResultsStore) -> None:
    updates: list[ProgressUpdate] = []
    plan = plan_collectives(LocalMachine(), 2, OPERATIONS, [1000, 4_000_000], repeats=2)
    bench = run_collectives(plan, updates.append)
    assert bench.backend == "gloo"
    assert [(r.operation, r.bytes) for r in bench.results] == [
        (operation, size) for operation in OPERATIONS for size in (1000, 4_000_000)
    ]
    assert all(r.correct and r.seconds > 0 and r.verdict != "wrong" for r in bench.results)
    assert bench.probe.ring_bytes_per_second == bench.modeled_bytes_per_second
    assert (updates[0].description, updates[0].done) == ("the links alone", 0)
    assert updates[-1].done == updates[-1].total == len(bench.results)
    store.add(bench)
    assert store.records(CollectivesBench) == [bench]
    assert store.get(bench.id) == bench
    assert store.records(Measurement) == []
    assert CollectivesBench.model_validate_json(to_json_lines([bench])) == bench
    rows = list(csv.DictReader(io.StringIO(COLLECTIVES.to_csv([bench]))))
    assert [row["operation"] for row in rows] == [r.operation for r in bench.results]


def test_ranks_over_mpi() -> None:
    try:
        check_mpi(LocalMachine())
    except MissingRequirement as missing:
        pytest.skip(str(missing))
    plan = plan_collectives(
        LocalMachine(), 3, OPERATIONS, [1200, 120_000], backend="mpi", repeats=2
    )
    bench = run_collectives(plan)
    assert bench.backend == "mpi"
    assert len(bench.results) == 2 * len(OPERATIONS)
    assert all(result.correct for result in bench.results)


def test_mpi_stays_on_this_machine() -> None:
    from gpuyard.lab import plan_lab
    from gpuyard.run.places import LabNodes

    with pytest.raises(GpuyardError, match="this machine only"):
        plan_collectives(LabNodes(plan_lab(2, "1Gbit")), 2, ["all_reduce"], [1000], backend="mpi")


class OneOfTwo:
    """Rank 1 of two; the other's part is worked out here, and may be spoilt on the way."""

    rank, count = 1, 2

    def __init__(self, spoil: bool) -> None:
        self.spoil = spoil

    def zeros(self, elements: int) -> torch.Tensor:
        return torch.zeros(elements)

    def all_reduce(self, whole: torch.Tensor) -> None:
        whole += whole / 2  # rank 0 has half of rank 1's
        self._spoil(whole)

    def broadcast(self, whole: torch.Tensor) -> None:
        whole /= 2
        self._spoil(whole)

    def all_gather(self, part: torch.Tensor, whole: torch.Tensor) -> None:
        whole.copy_(torch.cat([part / 2, part]))
        self._spoil(whole)

    def reduce_scatter(self, whole: torch.Tensor, part: torch.Tensor) -> None:
        part.copy_(whole[part.numel() :] * 1.5)
        self._spoil(part)

    def _spoil(self, received: torch.Tensor) -> None:
        if self.spoil:
            received[-1] += 1

    def clock(self) -> float:
        raise NotImplementedError

    def barrier(self) -> None:
        raise NotImplementedError

    def slowest(self, seconds: Sequence[float]) -> list[float]:
        raise NotImplementedError

    def shift(self, out: torch.Tensor, into: torch.Tensor) -> None:
        raise NotImplementedError

    def send(self, out: torch.Tensor, source: int, target: int) -> None:
        raise NotImplementedError

    def reduce(self, whole: torch.Tensor) -> None:
        raise NotImplementedError


@pytest.mark.parametrize("operation", ["all_reduce", "broadcast", "all_gather", "reduce_scatter"])
@pytest.mark.parametrize("elements", [2, 1000, 2_100_000])
@pytest.mark.parametrize("spoil", [False, True])
def test_one_wrong_number_among_millions_is_detected(
    operation: Collective, elements: int, spoil: bool
) -> None:
    exchange = Exchange(operation, 4 * elements, OneOfTwo(spoil))
    exchange.fill()
    exchange.run()
    assert exchange.is_correct() == (not spoil)


def test_as_a_user_runs_it(cli: Cli) -> None:
    done = cli("bench", "collectives", "--bytes", "1KB,64KB", "--repeats", "1", "--json")
    bench = json.loads(done.stdout)
    assert [r["operation"] for r in bench["results"]] == ["all_reduce", "all_reduce"]
    assert all(r["correct"] for r in bench["results"])
    listed = json.loads(cli("results", "list", "--kind", "collectives", "--json").stdout)
    assert [b["id"] for b in listed] == [bench["id"]]
    assert bench["id"] in cli("results", "list", "--kind", "collectives").stdout
    assert "busbw" in cli("results", "show", bench["id"]).stdout
    exported = cli("results", "export", "--kind", "collectives", "--as", "csv").stdout
    assert exported.count("\n") == 3


def test_a_dry_run_measures_nothing(cli: Cli) -> None:
    done = cli("bench", "collectives", "--lab", "8x10Gbit,dilation=10", "--dry-run", "--json")
    plan = json.loads(done.stdout)
    assert (plan["workers"], plan["link_bytes_per_second"]) == (8, 1.25e9)
    assert plan["place"]["dilation"] == 10
    text = cli("bench", "collectives", "--op", "all", "--bytes", "1MB", "--dry-run").stdout
    assert text.count("would be measured") == len(OPERATIONS)
    assert cli("results", "list", "--kind", "collectives", "--json").stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--op", "allreduce"], "did you mean 'all_reduce'"),
        (["--bytes", "1 Mb"], "did you mean"),
        (["--workers", "1"], "2 workers or more"),
        (["--lab", "2x1Gbit", "--hosts", "a,b"], "exclude each other"),
        (["--lab", "2x1Gbit", "--workers", "3"], "2 nodes with up to 1 each have 2 slots"),
        (["--factor", "1"], "factor of 2 or more"),
        (["--kind", "x"], "No such option: --kind"),
        (["--repeats", "0"], "expected 1 to 1000 repeats, got 0"),
        (["--backend", "smoke"], "'smoke'"),
    ],
)
def test_mistakes_are_sentences(arguments: list[str], sentence: str, cli: Cli) -> None:
    assert sentence in cli("bench", "collectives", *arguments, "--dry-run", status=2).stderr


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh is not here")
def test_an_unreachable_host_is_reported(cli: Cli) -> None:
    done = cli("bench", "collectives", "--hosts", "127.0.0.1,127.0.0.1", "--bytes", "1KB", status=1)
    assert "127.0.0.1 did not report its GPUs" in done.stderr
