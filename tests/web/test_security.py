"""The guard of the page: who gets in, from which site, how much, and what the log keeps."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import uvicorn

from gpuyard.files import home
from gpuyard.share.caller import user_name
from gpuyard.web.app import create_app
from gpuyard.web.server import PlainProtocol, open_port
from gpuyard.web.settings import WebSettings
from gpuyard.web.tokens import TokenStore
from tests.conftest import Cli
from tests.web.conftest import Serve, Site
from tests.web.seed import EVIL, LONG, seed_share

ME = user_name(os.getuid())
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="acts as several users, which needs root")
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
NOBODY = 65_534


def _token(cli: Cli, *options: str) -> str:
    return cli("serve", "token", "new", *options).stdout.strip()


def _signed_in(site: Site, token: str) -> Site:
    return Site(site.address, site.process, {"Authorization": f"Bearer {token}"})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "::1"])  # noqa: S104
def test_other_addresses_need_auth(cli: Cli, host: str) -> None:
    refused = cli("serve", "--host", host, status=2)
    assert "--auth token" in refused.stderr
    assert refused.stdout == ""


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--auth", "tokn"), "token"),
        (("--auth", "proxy"), "--proxy"),
        (("--proxy", "10.0.0.5"), "--auth proxy"),
        (("--certificate", "missing.pem"), "--key"),
        (("--socket", "x.socket", "--auth", "token"), "--auth"),
    ],
)
def test_wrong_options_are_explained(cli: Cli, options: tuple[str, ...], named: str) -> None:
    assert named in cli("serve", *options, status=2).stderr


def test_a_used_port_is_explained(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "--port" in cli("serve", "--port", port, status=1).stderr


def _list_routes() -> list[tuple[str, str]]:
    app = create_app(WebSettings(auth="token"))
    routes = [
        (method, re.sub(r"\{[^}]*\}", "x", getattr(route, "path", "")))
        for route in _flatten(app.routes)
        for method in sorted(getattr(route, "methods", None) or ())
    ]
    assert len(routes) > 30
    return routes


def _flatten(routes: Sequence[object]) -> list[object]:
    """Return all routes, also those of included routers."""
    flat: list[object] = []
    for route in routes:
        inner = getattr(getattr(route, "original_router", None), "routes", None)
        flat += _flatten(list(inner)) if inner else [route]
    return flat


def test_every_route_needs_credentials(serve: Serve) -> None:
    site = serve("--auth", "token")
    for method, path in _list_routes():
        reply = site.request(method, path)
        assert reply.status == 401, (method, path, reply.status)
        assert "www-authenticate" in reply.headers


def test_a_token_opens_the_page_until_it_is_revoked(serve: Serve, cli: Cli, share: Path) -> None:
    site = serve("--auth", "token")
    token = _token(cli)
    stored = (home() / "web" / "tokens.json").read_text()
    assert token.split("_", 2)[2] not in stored
    assert (home() / "web" / "tokens.json").stat().st_mode & 0o077 == 0
    signed_in = _signed_in(site, token)
    assert signed_in.get("/now.json").json()["sources"][0]["share"]["gpus"]
    (listed,) = json.loads(cli("serve", "token", "list", "--json").stdout)["tokens"]
    assert listed["user"] == ME
    assert signed_in.get("/", Authorization=f"Bearer {token[:-1]}x").status == 401
    assert site.get(f"/?token={token}").status == 401
    cli("serve", "token", "revoke", listed["id"])
    assert signed_in.get("/now.json").status == 401
    assert "not found" in cli("serve", "token", "revoke", listed["id"], status=2).stderr


def test_a_revoked_token_ends_open_streams(serve: Serve, cli: Cli, share: Path) -> None:
    site = _signed_in(serve("--auth", "token"), _token(cli))
    (listed,) = json.loads(cli("serve", "token", "list", "--json").stdout)["tokens"]
    with contextlib.closing(site.connect()) as connection:
        connection.request("GET", "/events/now", headers=site.headers)
        stream = connection.getresponse()
        assert stream.readline().startswith(b"event: now")
        cli("serve", "token", "revoke", listed["id"])
        stream.read()  # returns when the server ends the stream


def test_a_token_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TokenStore(tmp_path / "web" / "tokens.json")
    token, text = store.create(ME, 60.0)
    assert store.find(text) == token
    later = time.time() + 61
    monkeypatch.setattr("gpuyard.web.tokens.time.time", lambda: later)
    assert store.find(text) is None
    assert store.list() == []


def test_signing_in_keeps_the_token_from_scripts_and_other_sites(
    serve: Serve, cli: Cli, share: Path
) -> None:
    site = serve("--auth", "token")
    token = _token(cli, "--for", "1 day")
    page = site.get("/")
    assert page.status == 401
    assert 'name="token"' in page.text
    assert site.post("/sign-in", {"token": "gy_wrong_wrong"}).status == 401
    reply = site.post("/sign-in", {"token": token})
    assert reply.status == 303
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert token not in reply.headers["location"]
    value = reply.headers["set-cookie"].partition(";")[0]
    assert site.get("/now.json", Cookie=value).status == 200
    # a cookie is sent by the browser itself, so an action also needs the token of a form
    refused = site.post("/act/release", {"lease": "x"}, Cookie=value)
    assert refused.status == 403


def test_guessing_tokens_is_slow(serve: Serve) -> None:
    site = serve("--auth", "token")
    replies = [site.post("/sign-in", {"token": f"gy_{i}_x"}).status for i in range(25)]
    assert replies[0] == 401
    assert replies[-1] == 429


def test_only_a_trusted_proxy_may_name_users(serve: Serve, share: Path) -> None:
    trusted = serve("--auth", "proxy", "--proxy", "127.0.0.1")
    assert trusted.get("/").status == 401
    assert ME in trusted.get("/", X_Forwarded_User=ME).text
    assert trusted.get("/", X_Forwarded_User="no-such-user").status == 401
    other = serve("--auth", "proxy", "--proxy", "192.0.2.1")
    assert other.get("/", X_Forwarded_User=ME).status == 401


def test_the_printed_address_of_all_interfaces_works(serve: Serve, cli: Cli) -> None:
    site = _signed_in(serve("--host", "0.0.0.0", "--auth", "token"), _token(cli))  # noqa: S104
    port = urlsplit(site.address).port
    assert site.get("/results").status == 200
    own = urlsplit(site.address).hostname
    for name in (own, "localhost", socket.gethostname(), socket.gethostname().upper()):
        assert site.get("/results", Host=f"{name}:{port}").status == 200, name
    for name in ("evil.example", "198.51.100.7", "0.0.0.0"):  # noqa: S104
        assert site.get("/results", Host=f"{name}:{port}").status == 421, name


def test_hosts_origins_and_forms_of_others_are_refused(serve: Serve, share: Path) -> None:
    site = serve()
    assert site.get("/", Host="evil.example").status == 421
    assert site.get("/", Origin="https://evil.example").status == 403
    assert site.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors").status == 403
    assert site.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate").status == 200
    assert site.post("/act/release", {"lease": "x"}).status == 403
    assert site.post("/act/release", {"lease": "x", "csrf": "0" * 64}).status == 403
    assert site.post("/act/release", {"lease": "x"}, Content_Type="text/plain").status in (403, 415)
    assert site.request("DELETE", "/").status == 405
    named = serve("--host-name", "yard.example")
    assert named.get("/", Host="yard.example").status == 200


def test_scripts_come_from_the_server_only(serve: Serve, share: Path) -> None:
    reply = serve().get("/")
    policy = dict(
        part.strip().partition(" ")[::2]
        for part in reply.headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == "'self'"
    assert "unsafe-inline" not in policy["style-src"]
    assert policy["frame-ancestors"] == "'none'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cache-control"] == "no-store"
    for script in re.findall(r"<script[^>]*>", reply.text):
        assert "src=" in script or "application/json" in script, script
    assert not re.search(r"\son\w+=", reply.text)
    assert not re.search(r'src="(?:https?:)?//|<link[^>]*href="(?:https?:)?//', reply.text)


def test_large_and_slow_requests_are_refused(serve: Serve, share: Path) -> None:
    site = serve()
    large = site.post("/act/release", {"lease": "x" * 300_000})
    assert large.status == 413
    many = site.post("/act/release", {f"f{i}": "" for i in range(100)})
    assert many.status == 400
    assert site.get("/now.json?" + "a" * 20_000).status == 414


def test_a_body_that_does_not_arrive_in_time_is_refused(serve: Serve, share: Path) -> None:
    host, _, port = serve().address.removeprefix("http://").rstrip("/").partition(":")
    head = f"POST /act/release HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 100\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=120) as connection:
        connection.sendall(f"{head}lease=".encode())
        assert connection.recv(12) == b"HTTP/1.1 408"


def test_actions_are_limited_in_their_rate(serve: Serve, share: Path) -> None:
    site = serve()
    statuses = [site.post("/act/release", {"lease": "x"}).status for _ in range(40)]
    assert statuses[0] == 403
    assert statuses[-1] == 429
    assert site.get("/now.json").status == 200, "looking is still allowed"


def test_connections_without_a_whole_request_are_closed(serve: Serve, share: Path) -> None:
    site = serve()
    host, _, port = site.address.removeprefix("http://").rstrip("/").partition(":")
    begin = b"GET /now.json HTTP/1.1\r\nHost: "
    whole = begin + f"{host}:{port}\r\n\r\n".encode()
    with contextlib.ExitStack() as stack:
        silent, partial, second = (
            stack.enter_context(socket.create_connection((host, int(port)))) for _ in range(3)
        )
        partial.sendall(begin)
        second.sendall(whole)
        assert second.recv(12) == b"HTTP/1.1 200"
        second.sendall(begin)
        for connection in (silent, partial, second):
            connection.settimeout(120)
            while connection.recv(65_536):  # returns nothing when the server closes it
                pass
    assert site.get("/now.json").status == 200


def test_names_are_only_text(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(tmp_path / "share"))
    seed_share(tmp_path / "share", names=(EVIL, LONG, EVIL))
    site = serve()
    for page in ("/", f"/act/submit?command={EVIL.replace(' ', '+')}", f"/{EVIL.replace(' ', '')}"):
        text = site.get(page).text
        assert "<script>document" not in text
        assert "<img" not in text
    assert "&lt;script&gt;" in site.get("/").text


def test_a_defect_logs_no_token(cli: Cli, share: Path, capfd: pytest.CaptureFixture[str]) -> None:
    token = _token(cli)
    settings = WebSettings(auth="token", port=_free_port())
    app = create_app(settings)

    async def fail() -> None:
        raise RuntimeError(f"the request said {token}")

    app.add_api_route("/defect", fail)
    server = uvicorn.Server(
        uvicorn.Config(
            app, port=settings.port, http=PlainProtocol, log_level="debug", access_log=True
        )
    )
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        site = Site(settings.address, None, {"Authorization": f"Bearer {token}"})  # type: ignore[arg-type]
        reply = site.get("/defect", Cookie=f"gpuyard_token={token}")
    finally:
        server.should_exit = True
        thread.join()
    log = "".join(capfd.readouterr())
    assert reply.status == 500
    assert token not in reply.text
    assert "RuntimeError" in log, "the defect is logged"
    assert token.split("_", 2)[2] not in log


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_a_killed_server_leaves_a_socket_that_the_next_one_takes(
    serve: Serve, share: Path, tmp_path: Path, cli: Cli
) -> None:
    path = tmp_path / "web.socket"
    first = serve("--socket", str(path))
    assert "another server" in cli("serve", "--socket", str(path), status=1).stderr
    assert first.get("/now.json").status == 200
    first.process.kill()
    first.process.wait()
    assert path.exists()
    assert serve("--socket", str(path)).get("/now.json").status == 200


@needs_root
@needs_curl
def test_another_local_user_cannot_use_the_loopback_port(serve: Serve, share: Path) -> None:
    site = serve()
    refused = subprocess.run(
        ("curl", "-s", "-w", "%{http_code}", site.address),
        user=NOBODY, group=NOBODY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert refused.stdout.endswith("401")


@needs_root
@needs_curl
def test_a_unix_socket_identifies_its_users(serve: Serve, share: Path) -> None:
    path = Path(f"/tmp/gpuyard-web-{os.getpid()}.socket")  # noqa: S108 - others must reach it
    site = serve("--socket", str(path))
    assert site.get("/now.json").status == 200

    def ask(url: str) -> str:
        return subprocess.run(
            ("curl", "-s", "--unix-socket", path, f"http://localhost{url}"),
            user=NOBODY, group=NOBODY, extra_groups=(), capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip

    assert 'title="nobody"' in ask("/")
    leases = [
        lease
        for gpu in json.loads(ask("/now.json"))["sources"][0]["share"]["gpus"]
        for lease in gpu["leases"]
    ]
    assert leases
    assert all(lease["command"] is None for lease in leases), "commands of others are hidden"
    site.stop()
    assert not path.exists()


def test_connections_send_an_answer_without_waiting_for_acknowledgments() -> None:
    with (
        open_port(WebSettings(port=0)) as listening,
        socket.create_connection(listening.getsockname()),
        listening.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
