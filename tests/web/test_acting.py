"""Commands that the server runs: as the user who asked, and never as the server."""

import os
import pwd
from pathlib import Path

import pytest

from gpuyard.web import acting
from gpuyard.web.acting import Action, NotPermitted
from gpuyard.web.auth import Identity, is_share_admin

NOBODY = Identity(65_534, "nobody", is_admin=False)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as another user, which needs root")


@needs_root
def test_a_process_of_another_user_has_their_account_and_none_of_the_servers_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "x")
    script = "import os; print(os.getuid(), os.geteuid(), os.getgroups(), dict(os.environ))"
    monkeypatch.setattr(
        acting, "module_argv", lambda _: ("/usr/bin/env", "python3", "-I", "-c", script)
    )
    outcome = acting.perform(NOBODY, Action(()))
    assert outcome.ok, outcome.errors
    groups = os.getgrouplist("nobody", pwd.getpwuid(NOBODY.uid).pw_gid)
    assert outcome.output.startswith(f"65534 65534 {groups}")
    assert "SECRET_OF_THE_SERVER" not in outcome.output


def test_a_server_of_another_user_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    with pytest.raises(NotPermitted, match="run the command"):
        acting.perform(NOBODY, Action(("who",)))


def test_admins_are_those_of_the_share(empty_share: Path) -> None:
    assert is_share_admin(os.getuid())
    assert is_share_admin(0)
    assert not is_share_admin(NOBODY.uid)


def test_the_line_is_quoted() -> None:
    assert Action(("submit", "--", "sh", "-c", "a b")).line == "gpuyard submit -- sh -c 'a b'"
