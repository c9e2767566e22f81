"""The goodput of a training on a cluster: where the checkpoint and restart times come from."""

import pytest

from gpuyard.catalog import gpus
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.hardware.clusters import read_cluster
from gpuyard.planner.goodput import estimate_goodput, find_prices, plan_checkpoints
from gpuyard.specs.cluster import Storage

H100 = gpus().get("h100-sxm5-80gb")


def test_the_clusters_own_storage_comes_before_an_assumed_one() -> None:
    cluster = read_cluster("32xdgx-h100")
    assumed = plan_checkpoints(cluster, 32, 1.2e12)
    assert assumed.write_seconds == pytest.approx(1.2e12 / (2 * 30e9))
    assert "assumed" in assumed.storage
    own = cluster.model_copy(update={"storage": Storage(read="40 GB/s", write="10 GB/s")})
    described = plan_checkpoints(own, 32, 1.2e12)
    assert described.write_seconds == pytest.approx(120)
    assert described.restart_seconds == pytest.approx(600 + 30)
    named = plan_checkpoints(own, 32, 1.2e12, storage="4xlustre-nvme")
    assert named.write_seconds == pytest.approx(10)
    local = plan_checkpoints(own, 32, 1.2e12, storage="local-nvme")
    assert local.write_seconds == pytest.approx(1.2e12 / (32 * 3.5e9))


def test_wrong_storage_is_a_sentence() -> None:
    cluster = read_cluster("8xh100")
    with pytest.raises(UnknownName, match="lustre-nvme"):
        plan_checkpoints(cluster, 1, 1e9, storage="lustre-nvm")
    with pytest.raises(UserMistake, match="at most 1"):
        plan_checkpoints(cluster, 1, 1e9, storage="2xnfs-flash")


def test_more_gpus_lower_goodput_and_shorten_the_interval() -> None:
    result = estimate_goodput("m", read_cluster("8xh100"), checkpoint_bytes=1e12)
    shares = [point.share for _, point in result.by_gpus]
    intervals = [point.interval_seconds for _, point in result.by_gpus]
    assert shares == sorted(shares, reverse=True)
    assert intervals == sorted(intervals, reverse=True)
    best = max(result.by_interval, key=lambda pair: pair[1].share)
    assert best[0] == pytest.approx(result.goodput.interval_seconds, rel=0.2)


def test_a_job_cannot_have_more_gpus_than_its_cluster() -> None:
    with pytest.raises(UserMistake, match="has only 8 GPUs, not 9"):
        estimate_goodput("m", read_cluster("8xh100"), gpus=9, checkpoint_bytes=1e9)


def test_spot_is_compared_on_one_instance() -> None:
    price, spot = find_prices(H100, 8, None)
    assert price is not None
    assert price == spot
    assert price.gpus == 8
