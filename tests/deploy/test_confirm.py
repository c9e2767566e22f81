"""Which removals of machines need the user's agreement."""

from pathlib import Path

import pytest

from gpuyard.cli.deploy.confirm import DeletionNotConfirmed, check_loss
from gpuyard.deploy.deployment import load_deployment
from tests.deploy.conftest import Up


def test_storage_outside_the_head_outlives_replaced_machines(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, file = load_deployment(Path(up.file)), Path(up.file)
    hosts = loaded.state.hosts()
    (up.shared / "x").write_text("12345")

    def check(*, removes_storage: bool) -> None:
        check_loss(loaded, hosts, file, yes=False, force=True, removes_storage=removes_storage)

    with pytest.raises(DeletionNotConfirmed, match="1 file, 5 B"):
        check(removes_storage=False)
    monkeypatch.setattr(type(loaded.target), "shared_is_on_head", False)
    check(removes_storage=False)
    with pytest.raises(DeletionNotConfirmed, match="1 file, 5 B"):
        check(removes_storage=True)
