"""The Lambda Cloud client: its requests, its rate limit, and its error messages."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.deploy.clouds import lambda_cloud
from gpuyard.deploy.clouds.lambda_cloud import (
    LambdaCloud,
    LambdaNoResponse,
    LambdaRequestError,
    key_file,
)
from gpuyard.deploy.clouds.rate_limit import RateLimiter
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from tests.deploy.targets.lambda_server import KEY, Account, serving


@pytest.fixture
def account(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    del home
    with serving() as (account, address):
        monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
        monkeypatch.setenv("GPUYARD_LAMBDA_WAIT_SCALE", "0.001")
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        yield account


def test_types_with_price_and_capacity(account: Account) -> None:
    account.capacity["us-east-1"] = 0
    instance_type = LambdaCloud.from_environment().instance_types()["gpu_8x_a100"]
    assert (instance_type.usd_per_hour, instance_type.regions) == (10.32, ())


def test_an_instance_from_launch_to_end(account: Account) -> None:
    cloud = LambdaCloud.from_environment()
    instance_id = cloud.launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    first = cloud.instance(instance_id)
    assert first is not None
    assert not first.ready
    second = cloud.instance(instance_id)
    assert second is not None
    assert second.ready
    assert second.private_address == "10.19.0.1"
    assert cloud.find_by_name("a") == second
    cloud.terminate(instance_id)
    assert cloud.instance(instance_id) is None
    assert cloud.find_by_name("a") is None
    cloud.terminate(instance_id)  # again
    assert account.live() == []


def test_all_pages_are_read(account: Account) -> None:
    account.page = 2
    cloud = LambdaCloud.from_environment()
    for name in "abcde":
        cloud.launch(name, "gpu_1x_a10", "us-east-1", "laptop")
    assert [item.name for item in cloud.instances()] == list("abcde")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"capacity": {"us-east-1": 0}}, "no gpu_1x_a10 in us-east-1 now"),
        ({"quota": 0}, "quota .* used up"),
    ],
)
def test_refusals_are_sentences(account: Account, change: dict[str, object], sentence: str) -> None:
    for name, value in change.items():
        setattr(account, name, value)
    with pytest.raises(LambdaRequestError, match=sentence):
        LambdaCloud.from_environment().launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    assert account.requests == ["POST instance-operations/launch"]


def test_a_bad_key_is_reported_without_the_key(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "wrong-secret")
    with pytest.raises(LambdaRequestError, match="API key") as raised:
        LambdaCloud.from_environment().instances()
    assert "wrong-secret" not in f"{raised.value!r} {LambdaCloud.from_environment()!r}"
    assert len(account.requests) == 1


def test_rate_limits_and_server_errors_are_retried(account: Account) -> None:
    account.throttled, account.faults = 2, 1
    assert LambdaCloud.from_environment().instances() == []
    assert len(account.requests) == 4
    account.throttled = 2
    LambdaCloud.from_environment().launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    assert account.live() == ["a"]


def test_a_launch_is_never_sent_twice_when_it_may_have_worked(account: Account) -> None:
    account.lose_answers = True
    with pytest.raises(LambdaNoResponse, match="unreachable"):
        LambdaCloud.from_environment().launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    assert account.live() == ["a"]


def test_an_unreachable_service_is_reported(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    del account
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", "http://127.0.0.1:1")
    with pytest.raises(GpuyardError, match=r"unreachable \(GET instances\): .*refused"):
        LambdaCloud.from_environment().instances()


@pytest.mark.parametrize("address", ["http://cloud.lambda.ai/api/v1", "ftp://127.0.0.1", "x"])
def test_the_key_is_never_sent_unencrypted(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    with pytest.raises(UserMistake, match="expected an https URL"):
        LambdaCloud.from_environment()


def test_the_key_from_a_file_of_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del home
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    with pytest.raises(MissingRequirement, match="needs an API key"):
        LambdaCloud.from_environment()
    path = key_file()
    path.parent.mkdir(parents=True)
    path.write_text(f"{KEY}\n")
    path.chmod(0o644)
    with pytest.raises(UserMistake, match="chmod 600"):
        LambdaCloud.from_environment()
    path.chmod(0o600)
    assert LambdaCloud.from_environment().key == KEY


def test_a_real_service_is_not_hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    monkeypatch.setenv("GPUYARD_LAMBDA_WAIT_SCALE", "0.001")
    cloud = LambdaCloud.from_environment()
    assert cloud.wait_scale == 1.0
    assert cloud.rate_limiter.interval_seconds == {"request": 1.0, "launch": 12.0}
    assert lambda_cloud._ADDRESS.startswith("https://")


@pytest.mark.parametrize(
    "data",
    [
        None, 1, "x", [1], {"a": 1}, {"a": {}}, [{"id": "1"}], [{"id": "1", "status": "active", "ip": "x\n  ProxyCommand y"}],
        {"a": {"instance_type": {"price_cents_per_hour": "nan"}, "regions_with_capacity_available": []}},
        {"a": {"instance_type": {"price_cents_per_hour": -1}, "regions_with_capacity_available": []}},
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_a_sentence(
    account: Account, monkeypatch: pytest.MonkeyPatch, data: object
) -> None:
    del account
    cloud = LambdaCloud.from_environment()
    monkeypatch.setattr(LambdaCloud, "_send", lambda *_: {"data": data})
    query = cloud.instance_types if isinstance(data, dict) else cloud.instances
    with pytest.raises(GpuyardError, match="cannot parse"):
        query()
    with pytest.raises(LambdaNoResponse):
        cloud.launch("a", "gpu_1x_a10", "us-east-1", "laptop")


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_pace_is_kept_by_all_processes_together(tmp_path: Path) -> None:
    clock = _Clock()
    item = RateLimiter(
        tmp_path / "pace", {"request": 1.0, "launch": 12.0}, lambda: clock.now, clock.sleep
    )
    other = replace(item)
    sent = []
    for rate_limiter, kinds in [
        (item, ("request",)), (other, ("request",)), (item, ("request", "launch")), (other, ("request",)),
        (other, ("request", "launch")),
    ]:  # fmt: skip
        rate_limiter.wait(*kinds)
        sent.append(clock.now)
    assert sent == pytest.approx([1000, 1001, 1002, 1003, 1014])
    clock.now = 500.0  # the clock was set back
    item.wait("request", "launch")
    assert clock.now == 500.0
    (tmp_path / "pace").write_text("{")
    item.wait("request")
    assert clock.now == 500.0
