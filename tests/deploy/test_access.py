"""Working on a deployment over a real ssh: configuration entries, a tunnel, and copies of a folder."""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from gpuyard.deploy.access import notebook
from gpuyard.deploy.access.sync import parse_rsync_output
from gpuyard.deploy.state import Host, StateDirectory
from tests.conftest import Cli
from tests.deploy.conftest import Up


def ssh(config: Path, *arguments: str) -> str:
    done = subprocess.run(
        ("ssh", "-F", str(config), "-o", "BatchMode=yes", *arguments),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_entries_reach_a_machine_behind_the_head_and_leave_all_others_alone(
    cli: Cli, up: Up, tmp_path: Path
) -> None:
    own = "# mine\nHost *\n  Compression yes\n"
    config = tmp_path / "me" / ".ssh" / "config"
    config.write_text(own)
    config.chmod(0o640)
    printed = cli("deploy", "ssh-config", up.file).stdout
    assert "Host ours-two" in printed
    assert config.read_text() == own

    cli("deploy", "ssh-config", up.file, "--write")
    cli("deploy", "ssh-config", up.file, "--write")
    assert config.read_text().endswith(f"\n{own}")
    assert config.read_text().count("Include") == 1
    assert config.stat().st_mode & 0o777 == 0o640
    options = ssh(config, "-G", "ours-two")
    assert "proxyjump ours-localhost" in options
    assert "compression yes" in options
    assert ssh(config, "ours-two", "echo", "$SSH_CONNECTION").split()[2] == "127.0.0.2"

    cli("deploy", "ssh-config", up.file, "--remove")
    assert config.read_text() == own
    assert sorted(path.name for path in config.parent.iterdir()) == ["config"]
    assert "no entries" in cli("deploy", "ssh-config", up.file, "--remove").stderr


def test_every_person_has_entries_with_their_own_name_and_key(
    cli: Cli, up: Up, tmp_path: Path
) -> None:
    key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ0xPYkTyiuYF6mGVxsgPq9Kh1OQZ0FQ3Yw4bLZ1cPpR x"
    text = Path(up.file).read_text()
    Path(up.file).write_text(f"{text}users: [{{name: ada, keys: ['{key}']}}]\n")
    cli("deploy", "ssh-config", up.file, "--write")
    config = tmp_path / "me" / ".ssh" / "config"
    options = ssh(config, "-G", "ours-two-ada").splitlines()
    assert {"user ada", "proxyjump ours-localhost-ada", "hostkeyalias two"} <= set(options)
    assert not any(f"{up.state.path.parent.parent}/ssh" in line for line in options)
    assert "user ada" not in ssh(config, "-G", "ours-two")


def test_two_deployments_have_separate_entries_that_down_removes(
    cli: Cli, up: Up, tmp_path: Path
) -> None:
    config = tmp_path / "me" / ".ssh" / "config"
    cli("deploy", "ssh-config", up.file, "--write")
    other = StateDirectory("other")
    with other.hold():
        other.write_hosts((Host("one", "192.0.2.1"),))
    text = Path(up.file).read_text().replace("name: ours\ncluster", "name: other\ncluster")
    file = tmp_path / "other.deployment.yaml"
    file.write_text(text)
    cli("deploy", "ssh-config", str(file), "--write")
    assert "hostname 192.0.2.1" in ssh(config, "-G", "other-one")
    cli("deploy", "down", str(file))
    assert "hostname other-one" in ssh(config, "-G", "other-one")
    assert "hostname 127.0.0.1" in ssh(config, "-G", "ours-localhost")
    cli("deploy", "ssh-config", up.file, "--remove")
    assert not config.exists()


def test_ssh_knows_own_machines_as_the_user_knows_them(tmp_path: Path) -> None:
    state = StateDirectory("x")
    with state.hold():
        state.write_hosts((Host("one", "192.0.2.1"),))
    assert "hostkeyalias" not in ssh(state.ssh_config, "-G", "one")


def test_a_folder_is_copied_once_changed_files_again_and_deleted_ones_when_asked(
    cli: Cli, up: Up, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    (folder / "deep" / ".venv").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    (folder / "deep" / ".venv" / "big").write_text("x")
    (folder / "deep" / "a b $(c).py").write_text("print()")
    (folder / "train.py").write_text("train")
    (folder / "weights.pt").write_text("w")
    (folder / "link").symlink_to("train.py")
    arguments = ("deploy", "sync", up.file, str(folder), "--exclude", "*.pt", "--json")

    planned = json.loads(cli(*arguments, "--dry-run").stdout)
    assert {entry["file"] for entry in planned["copied"]} == {
        "deep/a b $(c).py",
        "train.py",
        "link",
    }
    assert not (up.shared / "project").exists()
    done = json.loads(cli(*arguments).stdout)
    assert done["copied_bytes"] == 12
    there = up.shared / "project"
    assert (there / "deep" / "a b $(c).py").read_text() == "print()"
    assert (there / "link").readlink() == Path("train.py")
    assert not (there / ".git").exists()
    assert not (there / "weights.pt").exists()

    assert json.loads(cli(*arguments).stdout)["copied"] == []
    (folder / "train.py").write_text("changed")
    (folder / "deep" / "a b $(c).py").unlink()
    (there / "weights.pt").write_text("made there")
    (there / "old").mkdir()
    again = json.loads(cli(*arguments).stdout)
    assert [entry["file"] for entry in again["copied"]] == ["train.py"]
    assert (there / "deep" / "a b $(c).py").exists()
    deleted = json.loads(cli(*arguments, "--delete").stdout)["deleted"]
    assert sorted(deleted) == ["deep/a b $(c).py", "old"]
    assert not (there / "old").exists()
    assert (there / "weights.pt").read_text() == "made there"


def test_a_failed_copy_is_reported(cli: Cli, up: Up, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "x").write_text("x")
    sync = ("deploy", "sync", up.file)
    assert "not found" in cli(*sync, str(folder / "none"), status=2).stderr
    assert "--to" in cli(*sync, str(folder), "--to", "a b", status=2).stderr
    assert "without '/'" in cli(*sync, str(folder), "--exclude", "a/b", status=2).stderr
    up.shared.rmdir()
    assert f"{up.shared} not found" in " ".join(cli(*sync, str(folder), status=1).stderr.split())


def test_rsync_reports_the_sent_bytes() -> None:
    output = (
        "cd+++++++++ 4096 ./\n"
        "<f+++++++++ 5 train.py\n"
        "<f.st...... 12 a b.py\n"
        "cL+++++++++ 8 link\n"
        ".f..t...... 3 touched\n"
        "*deleting   0 old/\n"
    )
    assert parse_rsync_output(output) == ((("train.py", 5), ("a b.py", 12), ("link", 0)), ("old",))


class _Jupyter(http.server.BaseHTTPRequestHandler):
    """Answers every request, which is all that the tunnel needs."""

    def do_GET(self) -> None:
        self.send_response(403)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def test_a_notebook_opens_at_an_address_alone_on_stdout_until_ctrl_c(
    up: Up, tmp_path: Path, cli: Cli
) -> None:
    assert "no JupyterLab" in cli("deploy", "open", "jupyter", up.file, status=2).stderr
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Jupyter)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    token = tmp_path / "token"
    token.write_text("s3cret\n")
    text = Path(up.file).read_text()
    Path(up.file).write_text(f"{text}head: [base, jupyter]\n")
    run = (
        "import sys; from gpuyard.deploy.access import notebook as n; from gpuyard.cli.main import main; "
        f"n.PORT = {server.server_port}; n.TOKEN_FILE = {str(token)!r}; sys.argv = ['gpuyard', 'deploy', "
        f"'open', 'jupyter', {up.file!r}]; main()"
    )
    process = subprocess.Popen(
        (sys.executable, "-P", "-c", run), stdout=subprocess.PIPE, text=True, env=os.environ
    )
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.endswith("/lab?token=s3cret")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(address, timeout=30)  # noqa: S310
        commands = subprocess.run(
            ("ps", "-eo", "args"), capture_output=True, text=True, check=True
        ).stdout
        assert "s3cret" not in commands
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == ""
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.communicate()
        server.shutdown()
        server.server_close()
    assert not any(b"s3cret" in p.read_bytes() for p in up.state.path.rglob("*") if p.is_file())
    assert notebook.PORT == 8888
