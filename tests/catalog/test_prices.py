"""What people rely on in the price table, and in the script that writes it."""

import datetime
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gpuyard
from gpuyard.catalog import gpus, past_prices, price_named, prices
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


def test_every_price_is_of_a_gpu_that_the_catalog_has_or_of_none() -> None:
    for price in prices():
        assert price.gpu is None or price.gpu in gpus(), price.id


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


def test_google_prices_say_that_the_host_is_not_in_them() -> None:
    attached = [price for price in prices() if price.cloud == "gcp"]
    assert attached
    assert all("host priced separately" in price.note for price in attached)


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
    assert ",v100-sxm2-16gb,V100,4,,,9.92,1.832,GPU only, host" in lines[2].replace('"', "")
    assert lines[3].endswith(",0.74,,")
    assert "left out 1: in an earlier file" in done.stderr
    assert "left out 2: a slice of a GPU" in done.stderr
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
    price = price_named("aws/p3dn.24xlarge@2022-10-11")
    assert (price.usd_per_hour, price.spot_usd_per_hour) == (31.212, 9.3636)
    assert price.date == datetime.date(2022, 10, 11)
    assert price_named("aws/p4d.24xlarge") == prices().get("aws/p4d.24xlarge")
    for past in past_prices():
        assert past.id == f"{past.cloud}/{past.instance}@{past.date}"


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
