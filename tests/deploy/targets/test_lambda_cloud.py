"""Lambda Cloud's interface: what is asked, how often, and what its refusals are called."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.deploy.clouds import lambda_cloud
from gpuyard.deploy.clouds.lambda_cloud import LambdaCloud, LambdaRefused, LambdaSilent, key_file
from gpuyard.deploy.clouds.pace import Pace
from gpuyard.errors import GpuyardError, MissingRequirement, UserMistake
from tests.deploy.targets.lambda_server import KEY, Account, serving


@pytest.fixture
def account(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Account]:
    del home
    with serving() as (account, address):
        monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
        monkeypatch.setenv("GPUYARD_LAMBDA_HASTE", "0.001")
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        yield account


def test_types_with_price_and_capacity(account: Account) -> None:
    account.capacity["us-east-1"] = 0
    found = LambdaCloud.of_user().instance_types()["gpu_8x_a100"]
    assert (found.usd_per_hour, found.regions) == (10.32, ())


def test_an_instance_from_launch_to_end(account: Account) -> None:
    cloud = LambdaCloud.of_user()
    identity = cloud.launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    first = cloud.instance(identity)
    assert first is not None
    assert not first.ready
    second = cloud.instance(identity)
    assert second is not None
    assert second.ready
    assert second.private_address == "10.19.0.1"
    assert cloud.named("a") == second
    cloud.end(identity)
    assert cloud.instance(identity) is None
    assert cloud.named("a") is None
    cloud.end(identity)  # again
    assert account.live() == []


def test_all_pages_are_read(account: Account) -> None:
    account.page = 2
    cloud = LambdaCloud.of_user()
    for name in "abcde":
        cloud.launch(name, "gpu_1x_a10", "us-east-1", "laptop")
    assert [one.name for one in cloud.instances()] == list("abcde")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"capacity": {"us-east-1": 0}}, "no gpu_1x_a10 in us-east-1 now"),
        ({"quota": 0}, "quota at Lambda Cloud is used up"),
    ],
)
def test_refusals_are_sentences(account: Account, change: dict[str, object], sentence: str) -> None:
    for name, value in change.items():
        setattr(account, name, value)
    with pytest.raises(LambdaRefused, match=sentence):
        LambdaCloud.of_user().launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    assert account.asked == ["POST instance-operations/launch"]


def test_a_bad_key_is_a_sentence_without_the_key(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", "wrong-secret")
    with pytest.raises(LambdaRefused, match="does not accept the API key") as raised:
        LambdaCloud.of_user().instances()
    assert "wrong-secret" not in f"{raised.value!r} {LambdaCloud.of_user()!r}"
    assert len(account.asked) == 1


def test_asked_too_often_and_faults_are_tried_again(account: Account) -> None:
    account.too_often, account.faults = 2, 1
    assert LambdaCloud.of_user().instances() == []
    assert len(account.asked) == 4
    account.too_often = 2
    LambdaCloud.of_user().launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    assert account.live() == ["a"]


def test_a_launch_is_never_sent_twice_when_it_may_have_worked(account: Account) -> None:
    account.lose_answers = True
    with pytest.raises(LambdaSilent, match="does not answer"):
        LambdaCloud.of_user().launch("a", "gpu_1x_a10", "us-east-1", "laptop")
    assert account.live() == ["a"]


def test_a_service_that_is_away_is_a_sentence(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    del account
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", "http://127.0.0.1:1")
    with pytest.raises(GpuyardError, match=r"does not answer \(GET instances\): .*refused"):
        LambdaCloud.of_user().instances()


@pytest.mark.parametrize("address", ["http://cloud.lambda.ai/api/v1", "ftp://127.0.0.1", "x"])
def test_the_key_is_sent_to_nobody_unencrypted(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    with pytest.raises(UserMistake, match="expected an https address"):
        LambdaCloud.of_user()


def test_the_key_from_a_file_of_ones_own(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    del home
    monkeypatch.delenv("LAMBDA_API_KEY", raising=False)
    with pytest.raises(MissingRequirement, match="needs an API key"):
        LambdaCloud.of_user()
    path = key_file()
    path.parent.mkdir(parents=True)
    path.write_text(f"{KEY}\n")
    path.chmod(0o644)
    with pytest.raises(UserMistake, match="chmod 600"):
        LambdaCloud.of_user()
    path.chmod(0o600)
    assert LambdaCloud.of_user().key == KEY


def test_a_real_service_is_not_hastened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAMBDA_API_KEY", KEY)
    monkeypatch.setenv("GPUYARD_LAMBDA_HASTE", "0.001")
    cloud = LambdaCloud.of_user()
    assert cloud.haste == 1.0
    assert cloud.pace.seconds == {"request": 1.0, "launch": 12.0}
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
    cloud = LambdaCloud.of_user()
    monkeypatch.setattr(LambdaCloud, "_once", lambda *_: {"data": data})
    asked = cloud.instance_types if isinstance(data, dict) else cloud.instances
    with pytest.raises(GpuyardError, match="can't be understood"):
        asked()
    with pytest.raises(LambdaSilent):
        cloud.launch("a", "gpu_1x_a10", "us-east-1", "laptop")


class _Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_pace_is_kept_by_all_processes_together(tmp_path: Path) -> None:
    clock = _Clock()
    one = Pace(tmp_path / "pace", {"request": 1.0, "launch": 12.0}, lambda: clock.now, clock.sleep)
    other = replace(one)
    sent = []
    for pace, kinds in [
        (one, ("request",)), (other, ("request",)), (one, ("request", "launch")), (other, ("request",)),
        (other, ("request", "launch")),
    ]:  # fmt: skip
        pace.wait(*kinds)
        sent.append(clock.now)
    assert sent == pytest.approx([1000, 1001, 1002, 1003, 1014])
    clock.now = 500.0  # the clock was set back
    one.wait("request", "launch")
    assert clock.now == 500.0
    (tmp_path / "pace").write_text("{")
    one.wait("request")
    assert clock.now == 500.0
