"""Output of nccl-tests and other tools: each reader, and the verdicts about healthy and faulty machines."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.api.result import Result, Row
from gpuyard.api.tool_output import judge_tool_output
from gpuyard.errors import UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.measure.collectives.expected import bus_factor
from gpuyard.measure.tool_output.detect import parse_tool_output, read_tool_output
from gpuyard.measure.tool_output.expected_collectives import list_faults, predict_rates
from gpuyard.measure.tool_output.judge import judge_output
from gpuyard.measure.tool_output.readings import CollectiveReading, SizedRate, ToolOutput
from gpuyard.report.answer import Sentence
from tests.conftest import Cli

FILES = Path(__file__).parents[2] / "data" / "tool_output"
GIB = 1 << 30


def judge(name: str, **options: Any) -> dict[str, Any]:
    result = judge_tool_output(FILES / name, **options)
    document: dict[str, Any] = json.loads(json.dumps(result.answer.document))
    return document


def test_reads_ranks_gpus_and_rates_of_rccl_tests() -> None:
    (reading,) = read_tool_output(FILES / "mi300x.txt").collectives
    assert (reading.tool, reading.operation, reading.ranks, reading.nodes) == (
        "rccl-tests", "all_reduce", 8, 1,
    )  # fmt: skip
    assert reading.gpu_name == "AMD Instinct MI300X"
    assert reading.rows == (SizedRate(8388608, 161.14e9, 91.10 / 1e6, 0),)


def write_table(gpus: int, name: str, *rates: float, size: int = GIB) -> str:
    """Return what nccl-tests print on one node: one run for each bus bandwidth in GB/s."""
    devices = [
        f"#  Rank {i} Group 0 Pid {100 + i} on node1 device {i} [0x{i:02x}] {name}"
        for i in range(gpus)
    ]
    head = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
    lines = []
    for rate in rates:
        algorithm = rate / bus_factor("all_reduce", gpus)
        half = f"{size / algorithm / 1e3:.2f} {algorithm:.4f} {rate:.4f} 0"
        lines += [*devices, head, f"  {size} {size // 4} float sum -1 {half} {half}"]
    return "\n".join(lines) + "\n"


def read_headline(result: Result[Row]) -> str:
    first = result.answer.parts[0]
    assert isinstance(first, Sentence)
    return first.text


def judge_text(tmp_path: Path, text: str, **options: Any) -> dict[str, Any]:
    (tmp_path / "log").write_text(text, encoding="utf-8")
    return judge(str(tmp_path / "log"), **options)


@pytest.mark.parametrize("rate", [0.5, 8.0, 14.0])
def test_machines_that_differ_by_a_factor_of_a_hundred_are_not_judged(
    tmp_path: Path, rate: float
) -> None:
    document = judge_text(tmp_path, write_table(8, "NVIDIA GeForce RTX 4090", rate))
    (reading,) = document["rows"]
    assert (document["verdict"], reading["verdict"]) == ("not judged", "not judged")
    assert reading["expected_low"] < 0.5e9
    assert reading["expected_high"] > 14e9
    assert reading["ratio"] is None
    assert "%" not in read_headline(judge_tool_output(tmp_path / "log"))


def test_small_messages_say_why_they_are_not_judged(tmp_path: Path) -> None:
    text = write_table(8, "NVIDIA H100 80GB HBM3", 3.0, size=1 << 16)
    (reading,) = judge_text(tmp_path, text)["rows"]
    assert reading["verdict"] == "not judged"
    assert "latency" in reading["reason"]
    assert "%" not in read_headline(judge_tool_output(tmp_path / "log"))


def test_two_runs_in_one_log_have_different_names(tmp_path: Path) -> None:
    document = judge_text(tmp_path, write_table(8, "NVIDIA H100 80GB HBM3", 470.0, 240.0))
    first, second = document["rows"]
    assert (first["verdict"], second["verdict"]) == ("normal", "slow")
    assert "run 2" in second["reading"]
    assert "run 2" not in first["reading"]
    # a log with each line twice has one run
    text = write_table(8, "NVIDIA H100 80GB HBM3", 470.0)
    twice = "".join(2 * line for line in text.splitlines(keepends=True))
    assert len(judge_text(tmp_path, twice)["rows"]) == 1


def test_an_unknown_fault_is_not_called_likely(tmp_path: Path) -> None:
    judge_text(tmp_path, write_table(8, "NVIDIA H100 80GB HBM3", 240.0))
    assert "Likely" not in read_headline(judge_tool_output(tmp_path / "log"))


@pytest.mark.parametrize("prefix", ["2024-05-01T12:00:00.123Z ", "node1: ", "[pod/a-0/main] "])
def test_prefixes_of_log_collectors_are_ignored(prefix: str) -> None:
    for file in ("mi300x.txt", "lspci.txt", "smi_query.txt"):
        text = (FILES / file).read_text()
        prefixed = "\n".join(prefix + line for line in text.splitlines())
        assert parse_tool_output(prefixed, "log") == parse_tool_output(text, "log")


def test_a_file_can_come_from_standard_input() -> None:
    command = [sys.executable, "-m", "gpuyard", "bench", "collectives", "--from", "-", "--json"]
    text = write_table(8, "NVIDIA H100 80GB HBM3", 470.0)
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    assert json.loads(done.stdout)["verdict"] == "normal"


def test_wrong_values_end_with_an_error(cli: Cli, tmp_path: Path) -> None:
    text = (FILES / "mi300x.txt").read_text().replace("161.14      0", "161.14     17")
    (tmp_path / "log").write_text(text)
    done = cli("bench", "collectives", "--from", str(tmp_path / "log"), "--json", status=1)
    assert json.loads(done.stdout)["verdict"] == "wrong"


def test_a_gpu_that_the_catalog_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"NVIDIA Z9000.*catalog"):
        judge_text(tmp_path, write_table(8, "NVIDIA Z9000", 470.0))
    assert judge_text(tmp_path, write_table(4, "NVIDIA GH200 480GB", 300.0))["machine"]


def test_mpi_is_not_judged_like_nccl(tmp_path: Path) -> None:
    text = "# OSU {} Allreduce Latency Test v7.3\n# Size Avg Latency(us)\n67108864 1021.40\n"
    mpi = judge_text(tmp_path, text.format("MPI-CUDA"), on="8xh100", gpus=8)
    assert mpi["verdict"] == "not judged"
    assert "MPI" in mpi["rows"][0]["reason"]
    nccl = judge_text(tmp_path, text.format("NCCL-CUDA"), on="8xh100", gpus=8)
    assert nccl["verdict"] == "slow"


def test_a_network_card_on_too_few_lanes_is_named(tmp_path: Path) -> None:
    text = (
        "3b:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]\n"
        "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported\n"
        "\t\tLnkSta:\tSpeed 32GT/s, Width x{}\n"
        "04:00.0 Ethernet controller: Intel Corporation I210 Gigabit Network Connection\n"
        "\t\tLnkCap:\tPort #0, Speed 2.5GT/s, Width x4\n"
        "\t\tLnkSta:\tSpeed 2.5GT/s, Width x1\n"
    )
    (card,) = judge_text(tmp_path, text.format(8))["rows"]
    assert card["verdict"] == "slow"
    assert "8 of its 16 lanes" in card["causes"][0]["why"]
    assert judge_text(tmp_path, text.format(16))["verdict"] == "normal"


def test_a_host_link_at_half_its_rate_is_named_as_a_narrow_or_old_slot() -> None:
    text = (
        "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n          0         1        2\n"
        "0     55.30     27.10    55.2\n"
    )
    judgments = judge_output(parse_tool_output(text, "log"), read_cluster("4xh100"))
    (slow,) = [judgment for judgment in judgments if judgment.verdict == "slow"]
    assert "PCIe 4 ×16 or PCIe 5 ×8" in slow.causes[0].why


@pytest.mark.parametrize(
    ("cluster", "gpus", "slot"), [("2xrtx-4090", 2, 24e9), ("8xh100", 8, 48e9)]
)
def test_copies_through_the_host_are_expected_at_published_rates(
    cluster: str, gpus: int, slot: float
) -> None:
    """Both ways, the machines of the catalog reach 35 to 66% of their slots' rate in each direction."""
    rows = [
        f"{a} " + " ".join("911.0" if a == b else f"{slot / 1e9:.1f}" for b in range(gpus))
        for a in range(gpus)
    ]
    title = "Bidirectional P2P=Disabled Bandwidth Matrix (GB/s)"
    output = parse_tool_output("\n".join([title, "   D\\D  0   1", *rows, ""]), "log")
    (judgment,) = judge_output(output, read_cluster(cluster))
    assert judgment.expected == pytest.approx(2 * 0.48 * slot)
    assert judgment.low is not None
    assert judgment.high is not None
    assert judgment.low < 2 * 0.42 * slot < 2 * 0.6 * slot < judgment.high


def test_processes_that_are_all_rank_0_measured_nothing() -> None:
    document = judge("without_mpi.txt")
    assert document["verdict"] == "wrong"
    (reading,) = document["rows"]
    assert [cause["name"] for cause in reading["causes"]] == ["no-mpi"]


def test_prefixes_of_mpirun_and_srun_are_ignored() -> None:
    text = (FILES / "mi300x.txt").read_text()
    for prefix in ("[1,0]<stdout>:", "0: "):
        prefixed = "\n".join(prefix + line for line in text.splitlines())
        assert parse_tool_output(prefixed, "log").collectives[0].ranks == 8


def test_a_wrong_result_is_not_a_speed() -> None:
    text = (FILES / "mi300x.txt").read_text().replace("161.14      0", "161.14     17")
    output = parse_tool_output(text, "log")
    (judgment,) = judge_output(output, read_cluster("8xmi300x"))
    assert judgment.verdict == "wrong"


def test_one_rank_exchanges_nothing_and_no_rate_has_no_cause() -> None:
    text = (FILES / "mi300x.txt").read_text()
    output = parse_tool_output(text.replace("161.14", "  0.00"), "log")
    (judgment,) = judge_output(output, read_cluster("8xmi300x"))
    assert judgment.verdict == "slow"
    assert [cause.name for cause in judgment.causes] == ["unknown"]
    with pytest.raises(UserMistake, match="two GPUs or more"):
        judge_output(output, read_cluster("8xmi300x"), gpus=1)


def test_the_machine_is_asked_for_if_the_file_does_not_name_it(tmp_path: Path) -> None:
    text = (FILES / "mi300x.txt").read_text()
    unnamed = "\n".join(line for line in text.splitlines() if "Rank" not in line)
    (tmp_path / "log").write_text(unnamed)
    with pytest.raises(UserMistake, match="--on"):
        judge_tool_output(tmp_path / "log")
    # busbw / algbw = 2(n−1)/n tells the number of ranks
    (reading,) = parse_tool_output(unnamed, "log").collectives
    assert reading.ranks == 8


def test_several_nodes_need_a_network(tmp_path: Path) -> None:
    text = (FILES / "mi300x.txt").read_text()
    moved = re.sub(r"(Rank  [4-7] .* on) +g100n126", r"\1 g100n127", text)
    (tmp_path / "log").write_text(moved)
    with pytest.raises(UserMistake, match="on 2 nodes, but no network"):
        judge_tool_output(tmp_path / "log")


@pytest.mark.parametrize(
    ("file", "verdict", "rate"),
    [
        ("p2p.txt", "normal", 376.56e9),
        ("nvbandwidth.txt", "normal", 22.63e9),
    ],
)
def test_healthy_links_are_normal(file: str, verdict: str, rate: float) -> None:
    document = judge(file)
    assert document["verdict"] == verdict
    assert document["rows"][0]["busbw_bytes_per_second"] == pytest.approx(rate, rel=2e-3)


def test_a_slow_pair_is_named() -> None:
    text = (FILES / "p2p.txt").read_text().replace("376.39 2498.88", "38.20 2498.88")
    output = parse_tool_output(text, "log")
    slow = [j for j in judge_output(output, read_cluster("4xh100")) if j.verdict == "slow"]
    assert [judgment.label for judgment in slow] == ["GPU2 → GPU1"]
    assert [cause.name for cause in slow[0].causes] == ["outlier", "slow-link"]


def make_matrix(rates: dict[int, float], gpus: int, peer: str, usual: float) -> str:
    """Return a matrix of p2pBandwidthLatencyTest in which all links of some GPUs have other rates."""
    rows = [
        f"   {a} "
        + " ".join(
            "911.08" if a == b else f"{rates.get(a, rates.get(b, usual)):.2f}" for b in range(gpus)
        )
        for a in range(gpus)
    ]
    title = f"Unidirectional P2P={peer} Bandwidth Matrix (GB/s)"
    return "\n".join([title, "   D\\D     0      1 ", *rows, ""])


def test_many_slow_links_of_one_gpu_are_one_line_that_names_it() -> None:
    text = make_matrix({2: 20.0}, 8, "Enabled", 376.0)
    (slow, normal) = judge_output(parse_tool_output(text, "log"), None)
    assert slow.subject.endswith("14 slow links of GPU2")
    assert [cause.name for cause in slow.causes] == ["outlier"]
    assert "42 links" in normal.subject


def test_peer_access_that_is_slower_than_the_detour_is_a_cause_without_a_machine() -> None:
    """An NVIDIA/nccl thread (814): all 30 links at 10 GB/s with peer access, and at 22 GB/s without."""
    text = make_matrix({}, 6, "Disabled", 22.2) + make_matrix({}, 6, "Enabled", 9.96)
    judgments = judge_output(parse_tool_output(text, "log"), None)
    assert [judgment.verdict for judgment in judgments] == ["not judged", "slow"]
    assert [cause.name for cause in judgments[1].causes] == ["slow-peer"]
    assert "30 slow links" in judgments[1].subject


def test_devices_without_an_address_name_the_machine() -> None:
    text = (
        "nvbandwidth Version: v0.2\nDevice 0: NVIDIA GeForce RTX 4090\nDevice 1: NVIDIA GeForce RTX 4090\n\n"
        "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        "          0         1\n0     25.50     24.26\n"
    )
    (table,) = parse_tool_output(text, "log").tables
    assert table.gpu_names == ("NVIDIA GeForce RTX 4090",) * 2


def test_a_quoted_comment_is_read_and_a_table_without_rates_is_not_normal(tmp_path: Path) -> None:
    text = (FILES / "ib_write_bw.txt").read_text()
    quoted = "\n".join(f"> {line}" for line in text.splitlines())
    assert parse_tool_output(quoted, "log").tables == parse_tool_output(text, "log").tables
    empty = tmp_path / "log"
    empty.write_text(re.sub(r"^ *65536 .*$", "", text, flags=re.MULTILINE))
    assert read_headline(judge_tool_output(empty)).startswith("Not judged")


def test_a_port_is_judged_only_against_a_rate_that_is_known(tmp_path: Path) -> None:
    """98 Gbit/s is normal for 100 Gbit/s and slow for 200: the measurement cannot say which."""
    (unknown,) = judge("ib_write_bw.txt")["rows"]
    assert unknown["verdict"] == "not judged"
    assert "100 Gbit/s" in unknown["reason"]
    assert unknown["ratio"] is None
    assert judge("ib_write_bw.txt", link="100 Gbit/s")["verdict"] == "normal"
    assert judge("ib_write_bw.txt", link="10 Gbit/s")["verdict"] == "fast"
    # no standard port is healthy at 60 Gbit/s
    text = (FILES / "ib_write_bw.txt").read_text()
    assert judge_text(tmp_path, text.replace("11728.47", " 7152.56"))["verdict"] == "slow"


def test_a_port_at_the_rate_of_a_slower_one_is_explained() -> None:
    document = judge("ib_write_bw.txt", link="200 Gbit/s")
    (reading,) = document["rows"]
    assert reading["verdict"] == "slow"
    assert reading["causes"][0]["name"] == "slower-link"


def test_two_ranks_of_osu_on_one_machine_use_its_links() -> None:
    assert judge("osu_bw.txt")["verdict"] == "not judged"
    assert judge("osu_bw.txt", on="4xa100-sxm4-40gb")["verdict"] in ("normal", "slow")
    assert judge("osu_reduce.txt", on="8xh100", gpus=8)["verdict"] == "not judged"


def test_slots_clocks_and_errors_are_found_on_the_faulty_gpu_only() -> None:
    healthy, faulty = judge("smi_query.txt")["rows"]
    assert (healthy["verdict"], healthy["causes"]) == ("normal", [])
    assert [cause["name"] for cause in faulty["causes"]] == [
        "narrow-slot", "throttled", "throttled", "memory-errors",
    ]  # fmt: skip
    gpu, bridges = judge("lspci.txt")["rows"]
    assert "1 of its 16 lanes" in gpu["causes"][0]["why"]
    assert bridges["causes"][0]["name"] == "acs"


@pytest.mark.parametrize(
    ("cluster", "gpus", "nodes"),
    [("8xh200", 8, 1), ("4xa100-pcie-80gb", 4, 1), ("2xdgx-h100", 16, 2)],
)
def test_every_fault_is_found_at_the_rate_that_it_leaves(
    cluster: str, gpus: int, nodes: int
) -> None:
    spec = read_cluster(cluster)
    normal = predict_rates(spec, gpus, nodes, "all_reduce", [GIB])
    faults = list(list_faults(spec, gpus, nodes, "all_reduce", GIB))
    assert faults
    for fault in faults:
        if fault.bytes_per_second >= normal.low[0]:
            continue  # not to be told from a healthy machine
        row = SizedRate(GIB, fault.bytes_per_second, 1.0)
        reading = CollectiveReading("nccl-tests", "all_reduce", gpus, nodes, None, (row,))
        (judgment,) = judge_output(ToolOutput("log", (reading,)), spec)
        assert judgment.verdict == "slow"
        assert fault.cause.name in [cause.name for cause in judgment.causes]


def test_the_expected_rate_is_normal() -> None:
    for name, gpus in (("8xh100", 8), ("4xa100-pcie-80gb", 4), ("2xdgx-a100", 16)):
        spec = read_cluster(name)
        expected = predict_rates(spec, gpus, spec.nodes, "all_reduce", [GIB])
        assert expected.low[0] < expected.expected[0] < expected.high[0]
        row = SizedRate(GIB, expected.expected[0], 1.0)
        reading = CollectiveReading("nccl-tests", "all_reduce", gpus, spec.nodes, None, (row,))
        (judgment,) = judge_output(ToolOutput("log", (reading,)), spec)
        assert judgment.verdict == "normal"


@given(st.text(max_size=300))
def test_text_of_strangers_is_refused_in_a_sentence(text: str) -> None:
    for head in (
        "",
        "#  size count type redop time algbw busbw error\n",
        "# OSU MPI Bandwidth Test\n",
    ):
        try:
            parse_tool_output(head + text, "log")
        except UserMistake as mistake:
            assert "log" in str(mistake)


def test_rows_have_the_measured_and_the_expected_rate(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        write_table(8, "NVIDIA H100 80GB HBM3", 470.0, 240.0), encoding="utf-8"
    )
    healthy, slow = judge_tool_output(tmp_path / "log")
    assert healthy.busbw_bytes_per_second == pytest.approx(470e9)
    assert healthy.expected_low < healthy.busbw_bytes_per_second < healthy.expected_high
    assert (healthy.normal, slow.normal) == (True, False)
