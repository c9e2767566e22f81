"""Identifies the user of a request by the connection, a token, or a trusted proxy's header: an account of this machine."""

import grp
import os
import pwd
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.cookies import CookieError, SimpleCookie
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.share.caller import user_name
from gpuyard.share.config import ADMIN_GROUP, is_set_up, read_config, share_directory
from gpuyard.web.settings import WebSettings
from gpuyard.web.tokens import TokenStore

COOKIE = "gpuyard_token"
KERNEL = "uid"
"""The host of an ASGI client whose port is a user ID that the kernel reported (see `server`)."""
_BEARER = "Bearer "
_ACCOUNT_SECONDS = 5.0


@dataclass(frozen=True)
class Identity:
    """The user who asks."""

    uid: int
    user: str
    is_admin: bool
    by_header: bool = False
    """True if the request itself carries the proof, which a browser never adds on behalf of another site."""
    token: str = ""
    """ID of the token."""

    @property
    def is_own(self) -> bool:
        """True for the user who runs the server."""
        return self.uid == os.geteuid()


Headers = Mapping[str, str]
Authenticate = Callable[[Any, Headers], Identity | None]


def create_authenticator(settings: WebSettings, tokens: TokenStore) -> Authenticate:
    """Return the function that identifies the user of a request, or returns None."""
    if settings.auth == "token":
        return _TokenAuthenticator(tokens).identify
    if settings.auth == "proxy":
        return _ProxyAuthenticator(settings).identify
    return _identify_own_user if settings.auth == "own-user" else _identify_peer


def _identify_own_user(scope: Any, headers: Headers) -> Identity | None:
    identity = _identify_peer(scope, headers)
    return identity if identity and identity.uid in (0, os.geteuid()) else None


def _identify_peer(scope: Any, headers: Headers) -> Identity | None:
    del headers
    host, uid = scope.get("client") or ("", -1)
    return create_identity(uid) if host == KERNEL and uid >= 0 else None


class _TokenAuthenticator:
    """Accepts a token in the Authorization header or in the cookie that the sign-in page sets, never in an address."""

    def __init__(self, tokens: TokenStore) -> None:
        self._tokens = tokens

    def identify(self, scope: Any, headers: Headers) -> Identity | None:
        del scope
        text, by_header = read_cookie(headers), False
        if headers.get("authorization", "").startswith(_BEARER):
            text, by_header = headers["authorization"].removeprefix(_BEARER).strip(), True
        token = self._tokens.find(text) if text else None
        if token is None:
            return None
        try:
            account = pwd.getpwnam(token.user)
        except KeyError:
            return None
        return create_identity(account.pw_uid, by_header=by_header, token=token.id)


class _ProxyAuthenticator:
    """Accepts the user that a proxy at a trusted address names."""

    def __init__(self, settings: WebSettings) -> None:
        self._proxies = frozenset(settings.proxies)
        self._header = settings.proxy_header.lower()

    def identify(self, scope: Any, headers: Headers) -> Identity | None:
        address = (scope.get("client") or ("",))[0]
        name = headers.get(self._header, "")
        if address not in self._proxies or not name:
            return None
        try:
            return create_identity(pwd.getpwnam(name).pw_uid)
        except (KeyError, ValueError):
            return None


def may_continue(request: Any) -> bool:
    """Return whether the user of a long response is still allowed in: a token may have ended or been revoked."""
    token = request.state.identity.token
    return not token or request.app.state.tokens.is_valid(token)


def read_cookie(headers: Headers) -> str:
    """Return the token in the cookie; empty if there is none."""
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return morsel.value if morsel else ""


def create_identity(uid: int, *, by_header: bool = False, token: str = "") -> Identity:
    """Return the identity of an account; admins are those of the share."""
    user, is_admin = _look_up(uid, int(time.monotonic() / _ACCOUNT_SECONDS))
    return Identity(uid, user, is_admin, by_header, token)


@lru_cache(1000)
def _look_up(uid: int, period: int) -> tuple[str, bool]:
    """Return the name of an account and whether it is an admin; both are kept for a few seconds."""
    del period
    return user_name(uid), is_share_admin(uid)


def is_share_admin(uid: int) -> bool:
    """Return whether this is root, the owner of the share, or a member of its admin group."""
    if uid == 0:
        return True
    directory = share_directory()
    group = ADMIN_GROUP
    try:
        if is_set_up(directory):
            if directory.stat().st_uid == uid:
                return True
            group = read_config(directory).admin_group
        elif uid == os.geteuid():
            return True
        entry = grp.getgrnam(group)
        account = pwd.getpwuid(uid)
    except (KeyError, OSError, GpuyardError):
        return False
    return account.pw_gid == entry.gr_gid or account.pw_name in entry.gr_mem
