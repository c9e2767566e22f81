"""The guard in front of every route: host, rate, user, origin, CSRF token, and size of a request; headers of a response."""

import asyncio
import contextlib
import hashlib
import hmac
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from gpuyard.draw.palette import CHART_STYLE
from gpuyard.web.auth import Authenticate, Identity
from gpuyard.web.rate_limit import RateLimiter
from gpuyard.web.settings import WebSettings

MAX_BODY_BYTES = 262_144
MAX_FIELDS = 60
_BODY_SECONDS = 10.0
_MAX_QUERY_BYTES = 16_384
SIGN_IN = "/sign-in"

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

SIGN_IN_STYLE = (
    ":root{color-scheme:light dark}body{max-width:26rem;margin:18vh auto 0;padding:0 1.5rem;"
    "font:1rem/1.5 system-ui,sans-serif}input,button{font:inherit;padding:.5rem .75rem}"
    "input{width:100%;box-sizing:border-box;margin:.25rem 0 1rem}"
)
_STYLE_HASHES = " ".join(
    f"'sha256-{b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"
    for style in (SIGN_IN_STYLE, CHART_STYLE)
)
_CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; "
    f"style-src 'self' {_STYLE_HASHES}; "
    # ECharts positions its tooltips with style attributes; no attribute can run a script
    "style-src-attr 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = [
    (b"content-security-policy", _CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # with no-referrer, forms of this page have no origin
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


class CsrfTokens:
    """Tokens in forms, by which the server recognizes its own pages. They end with the server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def create(self, identity: Identity) -> str:
        text = f"{identity.uid}:{identity.token}".encode()
        return hmac.new(self._key, text, hashlib.sha256).hexdigest()

    def check(self, identity: Identity, text: str) -> bool:
        return hmac.compare_digest(self.create(identity).encode(), text.encode())


class Refusal(Exception):
    """A request that the guard does not let through."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


class Guard:
    """Lets through only requests of identified users, from this site, of limited size and rate."""

    def __init__(
        self,
        app: App,
        settings: WebSettings,
        authenticate: Authenticate,
        csrf: CsrfTokens,
        refuse: Callable[[Scope, int, str], Any],
    ) -> None:
        self._app, self._settings, self._authenticate = app, settings, authenticate
        self._csrf, self._refuse = csrf, refuse
        self._requests = RateLimiter(per_second=400, burst=1000)
        self._actions = RateLimiter(per_second=0.5, burst=30)
        self._failures = RateLimiter(per_second=1 / 6, burst=20)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # there are no WebSockets here
            await send({"type": "websocket.close", "code": 1008})
            return
        send = _add_headers(send, secure=self._settings.scheme == "https")
        try:
            headers = _read_headers(scope)
            self._check_target(scope, headers)
            identity = self._identify(scope, headers)
            if scope["method"] == "POST":
                body = await _read_body(receive)
                receive = _replay(body)
                if scope["path"] != SIGN_IN:
                    self._check_post(identity, headers, body)
        except Refusal as refusal:
            await self._refuse(scope, refusal.status, refusal.message)(scope, receive, send)
            return
        scope.setdefault("state", {})["identity"] = identity
        await self._app(scope, receive, send)

    def _check_target(self, scope: Scope, headers: dict[str, str]) -> None:
        local_address = str((scope.get("server") or ("",))[0])
        if not self._settings.allows_host(headers.get("host", ""), local_address):
            raise Refusal(
                421, "this server is not known by that name; start it with --host-name NAME"
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            raise Refusal(405, "only GET, HEAD, and POST are allowed")
        if len(scope.get("query_string", b"")) > _MAX_QUERY_BYTES:
            raise Refusal(414, "the address is too long")
        site = headers.get("sec-fetch-site", "same-origin")
        if site == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            raise Refusal(403, "another site may not read this one")
        origin = headers.get("origin")
        own = f"{self._settings.scheme}://{headers['host']}".lower()
        if origin is not None and origin.lower() not in (own, self._proxied(headers["host"])):
            raise Refusal(403, "another site may not use this one")

    def _proxied(self, host: str) -> str | None:
        """Return the origin of pages that a proxy serves with TLS."""
        return f"https://{host}".lower() if self._settings.auth == "proxy" else None

    def _identify(self, scope: Scope, headers: dict[str, str]) -> Identity | None:
        address = str((scope.get("client") or ("",))[0])
        is_sign_in = scope["path"] == SIGN_IN and scope["method"] == "POST"
        if is_sign_in and self._settings.auth == "token":
            if not self._failures.allow(address):
                raise Refusal(429, "too many attempts; wait a minute")
            return None
        if not self._failures.is_open(address):
            raise Refusal(429, "too many requests without valid credentials; wait a minute")
        identity = self._authenticate(scope, headers)
        if identity is None:
            if "authorization" in headers or "cookie" in headers:
                self._failures.allow(address)
            raise Refusal(401, self._explain_sign_in())
        if not self._requests.allow(f"{identity.uid}"):
            raise Refusal(429, "too many requests; wait a moment")
        return identity

    def _explain_sign_in(self) -> str:
        return {
            "token": "sign in with a token; gpuyard serve token new creates one",
            "proxy": "sign in at the proxy in front of this server",
            "peer": "the user of this connection is unknown",
            "own-user": "this server belongs to another user; start your own with gpuyard serve",
        }[self._settings.auth]

    def _check_post(self, identity: Identity | None, headers: dict[str, str], body: bytes) -> None:
        if identity is None:
            raise Refusal(401, self._explain_sign_in())
        if not self._actions.allow(str(identity.uid)):
            raise Refusal(429, "too many actions; wait a minute")
        if identity.by_header:
            return
        text = headers.get("x-csrf-token") or parse_form(headers, body).get("csrf", "")
        if not self._csrf.check(identity, text):
            raise Refusal(403, "this form is too old or not from this server; reload the page")


def parse_form(headers: Any, body: bytes) -> dict[str, str]:
    """Parse the fields of a form; a repeated field keeps its last value."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refusal(415, "send application/x-www-form-urlencoded")
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, strict_parsing=False
        )
    except (UnicodeDecodeError, ValueError):
        raise Refusal(400, "the form cannot be read") from None
    return dict(fields)


def _read_headers(scope: Scope) -> dict[str, str]:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        if key in headers and key in ("host", "origin", "authorization"):
            raise Refusal(400, f"the header {key} is repeated")
        headers[key] = value.decode("latin-1")
    return headers


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_BODY_SECONDS):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refusal(400, "the request ended early")
                body += message.get("body", b"")
                if len(body) > MAX_BODY_BYTES:
                    raise Refusal(413, f"a request may have at most {MAX_BODY_BYTES:,} bytes")
                if not message.get("more_body"):
                    return bytes(body)
    raise Refusal(408, f"the request did not arrive within {_BODY_SECONDS:.0f} s")


def _replay(body: bytes) -> Receive:
    sent = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()  # until the response is complete
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _add_headers(send: Send, *, secure: bool) -> Send:
    added = [*_HEADERS, *([(b"strict-transport-security", b"max-age=31536000")] if secure else [])]

    async def send_with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message["headers"]}
            cache = [] if b"cache-control" in names else [(b"cache-control", b"no-store")]
            message = {**message, "headers": [*message["headers"], *added, *cache]}
        await send(message)

    return send_with_headers
