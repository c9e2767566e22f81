"""The price table, and the script that writes it."""

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuyard
from gpuyard.catalog import find_price, gpus, links, past_prices, prices
from gpuyard.catalog.prices import find_instance_network, instance_networks
from gpuyard.errors import UnknownName

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "import_prices.py"

ONE_CLOUD = """\
# source: someone/catalog catalogs/v7/aws/vms.csv @0123, file last updated 2026-08-22; USD/h
instance,region,gpu,count,vcpus,mem_gib,price_usd_h,spot_usd_h
p4d.24xlarge,us-east-1,A100,8.0,96.0,1152.0,21.957642,10.1302
g6f.xlarge,us-east-1,L4,0.125,4.0,16.0,0.2375,0.1113
inf1.xlarge,us-east-1,Inferentia,1.0,4.0,8.0,0.228,0.0517
"""

MANY_CLOUDS = """\
# source: someone/catalog catalogs/*/vms.csv @0123 (2026-08-22); lowest over regions
cloud,file_date,instance,gpu,count,vcpus,mem_gib,min_price,max_price,min_spot,n_regions
aws,2026-08-22,p4d.24xlarge,A100,8.0,96.0,1152.0,20.0,30.4,7.5,12
gcp,2026-08-21,,V100,4,,,9.92,10.2,1.832,5
runpod,2026-08-22,1x_RTX4090_SECURE,RTX4090,1.0,6.0,29.0,0.74,0.74,0.74,3
runpod,2026-08-22,1x_PRO-6000-MIG-24GB_SECURE,PRO-6000-MIG-24GB,1.0,8.0,31.0,0.59,0.59,0.59,3
"""


SNAPSHOTS = """\
# source: someone/catalog @0123: catalogs/v3/aws.csv (2022-10-11), v6/aws/vms.csv (2025-06-04); USD/h
snapshot_date,instance,gpu,count,vcpus,mem_gib,price_usd_h,min_spot_usd_h
2022-10-11,p3.16xlarge,V100,8.0,64.0,488.0,24.48,8.1397
2025-06-04,p3.16xlarge,V100,8.0,64.0,488.0,24.48,3.2365
"""


def run_import(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(gpuyard.__file__).parents[1])}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_every_price_is_of_a_gpu_that_the_catalog_has() -> None:
    for price in prices():
        assert price.gpu in gpus(), price.id


def test_an_assumption_about_a_gpu_is_in_its_note() -> None:
    assert "taken as a100-pcie-80gb" in prices().get("ovhcloud/a100-180").note
    assert prices().get("cudo/epyc-genoa-a100-pcie_1x2v4gb").gpu == "a100-pcie-40gb"
    assert prices().get("primeintellect/nebius__8xH100_80GB__128__1600").gpu == "h100-sxm5-80gb"


def test_retired_sizes_are_past_prices_only() -> None:
    for name in ("NC6", "NC24r_Promo", "NV12_Promo", "NC6s_v3", "NC12s_v3", "NC24s_v3", "NV12s_v3"):
        assert f"azure/Standard_{name}" not in prices()
        past = past_prices().get(f"azure/Standard_{name}@2025-09-11")
        assert past.note.startswith("azure stopped offering it on 202")
    assert not any(price.gpu in ("k80", "m60") for price in prices())


@pytest.mark.parametrize(
    ("name", "gpu", "count", "usd"),
    [
        ("aws/p5e.48xlarge", "h200-sxm5-141gb", 8, 47.76),
        ("aws/u-p6e-gb200x72", "gb200", 72, 761.904),
        ("aws/trn1.32xlarge", "trainium-1", 16, 21.5),
        ("aws/trn2.48xlarge", "trainium-2", 16, 35.76),
        ("gcp/tpu-v5litepod-8", "tpu-v5e", 8, 9.6),
        ("gcp/tpu-v4-8", "tpu-v4", 4, 12.88),
        ("coreweave/hgx-h100-8x", "h100-sxm5-80gb", 8, 49.24),
        ("coreweave/gb200-4x", "gb200", 4, 42.0),
        ("shadeform/denvr_Gaudi2x8", "gaudi-2", 8, None),
    ],
)
def test_instances_of_these_gpus_have_a_price(
    name: str, gpu: str, count: int, usd: float | None
) -> None:
    price = prices().get(name)
    assert (price.gpu, price.gpus) == (gpu, count)
    assert usd is None or price.usd_per_hour == usd


def test_every_price_names_its_list_and_day() -> None:
    for price in prices():
        assert price.source.strip()
        assert datetime.date(2025, 1, 1) <= price.date <= datetime.date(2027, 1, 1), price.id


def test_prices_are_of_whole_gpus_and_plausible() -> None:
    for price in prices():
        assert 0.03 < price.usd_per_hour / price.gpus < 30, price.id
        assert price.spot_usd_per_hour is None or price.spot_usd_per_hour < price.usd_per_hour


def test_a_well_known_instance() -> None:
    price = prices().get("aws/p4d.24xlarge")
    assert (price.gpu, price.gpus, price.region) == ("a100-sxm4-40gb", 8, "us-east-1")
    assert price.usd_per_hour == pytest.approx(21.95764, abs=1e-4)


def test_google_prices_have_the_host_in_them() -> None:
    attached = [price for price in prices() if price.cloud == "gcp" and "tpu" not in price.id]
    assert len(attached) == 37
    assert all("GPUs and host added up" in price.note and price.vcpus for price in attached)
    whole = prices().get("gcp/A100x8")  # a2-highgpu-8g in Google's own sheet
    assert whole.instance == "a2-highgpu-8g"
    assert whole.usd_per_hour == pytest.approx(29.387, abs=1e-3)


def test_instances_of_the_large_clouds_have_their_networks() -> None:
    for network in instance_networks():
        assert network.id in prices()
        assert network.link is None or network.link in links()
    for name, total in {
        "aws/p4d.24xlarge": 400,
        "aws/p5.48xlarge": 3200,
        "aws/p5en.48xlarge": 3200,
        "aws/p6-b200.48xlarge": 3200,
        "aws/trn2.48xlarge": 3200,
        "azure/Standard_ND96isr_H100_v5": 3200,
        "azure/Standard_ND96asr_v4": 1600,
        "gcp/H100x8": 800,
        "gcp/H200x8": 3200,
        "oci/BM.GPU.H100.8": 3200,
        "coreweave/hgx-h100-8x": 3200,
    }.items():
        fast = find_instance_network(prices().get(name))
        assert fast is not None
        assert (fast.total_gbit_per_second, fast.network_protocol) == (total, "rdma")
        assert fast.network.rails == fast.rails
    slow = find_instance_network(prices().get("aws/g4dn.12xlarge"))
    assert slow is not None
    assert slow.network.per_flow == 10e9 / 8
    assert find_instance_network(prices().get("lambda/gpu_8x_a100")) is None
    large = [p for p in prices() if p.cloud in ("aws", "azure")]
    assert all(find_instance_network(price) for price in large)


def test_an_unknown_name_brings_the_closest() -> None:
    with pytest.raises(UnknownName) as raised:
        prices().get("aws/p4d.24xl")
    assert raised.value.closest == "aws/p4d.24xlarge"


def test_the_import_keeps_whole_gpus_and_lets_the_first_list_win(tmp_path: Path) -> None:
    exact, lowest, output = tmp_path / "aws.csv", tmp_path / "all.csv", tmp_path / "prices.csv"
    exact.write_text(ONE_CLOUD)
    lowest.write_text(MANY_CLOUDS)
    done = run_import(str(exact), str(lowest), "--output", str(output))
    assert done.returncode == 0, done.stderr
    first = output.read_text()
    lines = first.splitlines()
    assert [line.partition(",")[0] for line in lines[1:]] == [
        "aws/p4d.24xlarge",
        "gcp/V100x4",
        "runpod/1x_RTX4090_SECURE",
    ]
    assert ",us-east-1,a100-sxm4-40gb,A100,8,96,1152,21.95764,10.1302," in lines[1]
    with_host = 9.92 + 32 * 0.031611 + 120 * 0.004237
    assert (
        f",n1-standard-32 with 4 × V100,,v100-sxm2-16gb,V100,4,32,120,{with_host:.5f}," in lines[2]
    )
    assert lines[3].endswith(",0.74,,")
    assert "1: in an earlier file" in done.stderr
    assert "2: a slice of a GPU" in done.stderr
    run_import(str(exact), str(lowest), "--output", str(output))
    assert output.read_text() == first


def test_snapshots_have_their_day_in_their_name(tmp_path: Path) -> None:
    history, output = tmp_path / "history.csv", tmp_path / "past_prices.csv"
    history.write_text(SNAPSHOTS)
    done = run_import(str(history), "--output", str(output))
    assert done.returncode == 0, done.stderr
    lines = output.read_text().splitlines()
    assert lines[1].startswith("aws/p3.16xlarge@2022-10-11,someone/catalog @0123,2022-10-11,aws,")
    assert lines[2].startswith("aws/p3.16xlarge@2025-06-04,")
    assert ",24.48,8.1397," in lines[1]


def test_past_prices_are_found_by_name_and_day() -> None:
    price = find_price("aws/p3dn.24xlarge@2022-10-11")
    assert (price.usd_per_hour, price.spot_usd_per_hour) == (31.212, 9.3636)
    assert price.date == datetime.date(2022, 10, 11)
    assert find_price("aws/p4d.24xlarge") == prices().get("aws/p4d.24xlarge")
    for past in past_prices():
        assert past.id == f"{past.cloud}/{past.instance}@{past.date}"


def test_an_import_of_past_prices_keeps_what_was_retired(tmp_path: Path) -> None:
    lists, output = tmp_path / "all.csv", tmp_path / "past_prices.csv"
    lists.write_text(MANY_CLOUDS + "azure,2025-09-11,Standard_NC6,K80,1.0,6.0,56.0,0.9,1.4,0.1,5\n")
    done = run_import(str(lists), "--past", "--output", str(output))
    assert done.returncode == 0, done.stderr
    (only,) = output.read_text().splitlines()[1:]
    assert only.startswith("azure/Standard_NC6@2025-09-11,")
    assert "stopped offering it on 2023-09-06" in only
    run_import(str(lists), "--output", str(output))
    assert "Standard_NC6" not in output.read_text()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ONE_CLOUD.replace("vcpus", "cores"), "unknown column cores"),
        (ONE_CLOUD.replace("region,gpu", "region,region2"), "unknown column region2"),
        (ONE_CLOUD.replace("# source: ", ""), "the first line must name the source"),
        (ONE_CLOUD.replace("last updated", "of"), "the source line must name"),
    ],
)
def test_the_import_refuses_a_list_that_it_does_not_know(
    text: str, sentence: str, tmp_path: Path
) -> None:
    odd, output = tmp_path / "odd.csv", tmp_path / "prices.csv"
    odd.write_text(text)
    done = run_import(str(odd), "--output", str(output))
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert not output.exists()
