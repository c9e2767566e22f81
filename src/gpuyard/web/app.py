"""The application: every route, the guard in front of them, and errors as pages or JSON."""

import contextlib
import os
import secrets
import sys
import traceback
from collections.abc import AsyncIterator
from functools import cache
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.exceptions import HTTPException

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.printable import make_printable
from gpuyard.share.models import NoneFree
from gpuyard.version import __version__
from gpuyard.web import metrics
from gpuyard.web.acting import NotPermitted
from gpuyard.web.auth import COOKIE, create_authenticator
from gpuyard.web.page import is_fragment, render
from gpuyard.web.security import (
    SIGN_IN,
    SIGN_IN_STYLE,
    CsrfTokens,
    Guard,
    Refusal,
    Scope,
    parse_form,
)
from gpuyard.web.settings import WebSettings
from gpuyard.web.sources import create_sources
from gpuyard.web.tokens import TokenStore
from gpuyard.web.views import actions, buy, history, jobs, machine, now, results, room, scale

_STATIC = {
    "web.css": ("gpuyard.web", "static/web.css", "text/css"),
    "web.js": ("gpuyard.web", "static/web.js", "text/javascript"),
    "report.css": ("gpuyard.report", "static/report.css", "text/css"),
    "report.js": ("gpuyard.report", "static/report.js", "text/javascript"),
    "echarts.js": ("gpuyard.report", "vendor/echarts/echarts.min.js", "text/javascript"),
    "htmx.js": ("gpuyard.web", "vendor/htmx/htmx.min.js", "text/javascript"),
    "sse.js": ("gpuyard.web", "vendor/htmx-ext-sse/sse.min.js", "text/javascript"),
}
"""The files of every page, by their address; all come from this package."""


def create_app(settings: WebSettings) -> FastAPI:
    """Create the application of one server."""
    app = FastAPI(
        title="gpuyard serve",
        version=__version__,
        description="The documents behind the pages of gpuyard serve: the same as the commands' --json.",
        docs_url=None,
        redoc_url=None,
        openapi_url="/openapi.json",
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.csrf = CsrfTokens()
    app.state.tokens = TokenStore()
    app.state.machine = os.uname().nodename
    app.state.sources = create_sources(settings)
    app.state.renderings = {}
    for view in (now, jobs, history, scale, buy, room, machine, results, actions, metrics):
        app.include_router(view.router)
    app.add_api_route("/static/{name}", _get_static, include_in_schema=False)
    app.add_api_route(SIGN_IN, _sign_in, methods=["POST"], include_in_schema=False)
    app.add_api_route("/sign-out", _sign_out, methods=["POST"], include_in_schema=False)
    app.add_exception_handler(GpuyardError, _show_mistake)
    app.add_exception_handler(Refusal, _show_refusal)
    app.add_exception_handler(RequestValidationError, _show_invalid)
    app.add_exception_handler(HTTPException, _show_http_error)
    app.add_middleware(_ErrorBarrier)
    app.add_middleware(
        Guard,
        settings=settings,
        authenticate=create_authenticator(settings, app.state.tokens),
        csrf=app.state.csrf,
        refuse=_refuse,
    )
    return app


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    del app
    yield


class _ErrorBarrier:
    """Turns a defect into a page with a number, and writes the traceback (without any value) to the log."""

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        started = False

        async def watch(message: Any) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, watch)
        except Exception as error:  # noqa: BLE001 - one request's defect must not stop the server
            number = secrets.token_hex(4)
            _log_defect(number, scope, error)
            if not started:
                message = f"gpuyard failed; its log has the reason under {number}"
                await _refuse(scope, 500, message)(scope, receive, send)


def _log_defect(number: str, scope: Scope, error: Exception) -> None:
    """Write where it failed. Messages and values may contain what a user sent, so they are left out."""
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    where = "\n".join(f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames)
    line = f"gpuyard serve: {number}: {type(error).__name__} at {scope['method']} {scope['path']}\n"
    sys.stderr.write(make_printable(f"{line}{where}\n"))
    sys.stderr.flush()


def _wants_json(scope: Scope) -> bool:
    accepts = dict(scope["headers"]).get(b"accept", b"")
    return str(scope["path"]).endswith(".json") or accepts.startswith(b"application/json")


def _refuse(scope: Scope, status: int, message: str) -> Response:
    """Return the response of a request that does not reach a view."""
    headers = {"WWW-Authenticate": "Bearer"} if status == 401 else {}
    if status == 429:
        headers["Retry-After"] = "10"
    if _wants_json(scope):
        return JSONResponse({"error": message}, status, headers)
    from gpuyard.web.page import environment

    template = "sign_in.html.jinja" if status == 401 else "refusal.html.jinja"
    settings = getattr(getattr(scope.get("app"), "state", None), "settings", None)
    text = (
        environment()
        .get_template(template)
        .render(
            message=message,
            status=status,
            style=SIGN_IN_STYLE,
            has_form=settings is None or settings.auth == "token",
            action=SIGN_IN,
        )
    )
    return HTMLResponse(make_printable(text), status, headers)


def _show_error(request: Request, status: int, message: str) -> Response:
    if _wants_json(request.scope):
        return JSONResponse({"error": make_printable(message)}, status)
    template = "mistake.html.jinja" if is_fragment(request) else "error.html.jinja"
    return render(request, template, view="", title="Not possible", status=status, message=message)


def _show_mistake(request: Request, error: Exception) -> Response:
    status = 500
    if isinstance(error, UserMistake):
        status = 400
    elif isinstance(error, NotPermitted):
        status = 403
    elif isinstance(error, NoneFree):
        status = 409
    elif isinstance(error, GpuyardError):
        status = 503
    return _show_error(request, status, str(error))


def _show_refusal(request: Request, error: Exception) -> Response:
    return _show_error(request, getattr(error, "status", 400), str(error))


def _show_invalid(request: Request, error: Exception) -> Response:
    from gpuyard.specs.spec_errors import explain_value

    first = error.errors()[0]  # type: ignore[attr-defined]
    name = str(first["loc"][-1]) if first["loc"] else "request"
    return _show_error(request, 422, f"{name}: {explain_value(first)}")


def _show_http_error(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 500)
    texts = {404: "there is no such page", 405: "this page cannot be used that way"}
    return _show_error(request, status, texts.get(status, str(getattr(error, "detail", ""))))


async def _get_static(name: str) -> Response:
    """Send a file of the page itself."""
    if name not in _STATIC:
        raise HTTPException(404)
    content, kind = _read_static(name)
    headers = {"Cache-Control": "private, max-age=3600"}
    return Response(content, media_type=f"{kind}; charset=utf-8", headers=headers)


@cache
def _read_static(name: str) -> tuple[bytes, str]:
    package, path, kind = _STATIC[name]
    return files(package).joinpath(path).read_bytes(), kind


async def _sign_in(request: Request) -> Response:
    """Keep a valid token in a cookie that scripts cannot read and other sites never send."""
    settings: WebSettings = request.app.state.settings
    text = ""
    with contextlib.suppress(Refusal):  # without a token, it is refused below
        text = parse_form(request.headers, await request.body()).get("token", "").strip()
    token = request.app.state.tokens.find(text) if settings.auth == "token" else None
    if token is None:
        return _refuse(request.scope, 401, "this token is not valid, has ended, or was revoked")
    response = RedirectResponse("/", 303)
    response.set_cookie(
        COOKIE,
        text,
        expires=int(token.expires - token.created),
        httponly=True,
        samesite="strict",
        secure=settings.scheme == "https",
        path="/",
    )
    return response


async def _sign_out() -> Response:
    response = RedirectResponse("/", 303)
    response.delete_cookie(COOKIE, path="/")
    return response
