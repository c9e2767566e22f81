"""Tokens for `gpuyard serve --auth token`: random, stored as hashes, with an end, and revocable at any time."""

import fcntl
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.files import home, write_text

_PREFIX = "gy"
_MAX_CHARACTERS = 200
MAX_SECONDS = 366 * 86400.0


@dataclass(frozen=True)
class Token:
    """A token without its secret, which is shown once and never stored."""

    id: str
    user: str
    created: float
    expires: float
    sha256: str


class TokenStore:
    """The tokens of this user's servers. A running server sees every change."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or home() / "web" / "tokens.json"
        self._read_at: tuple[int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def create(self, user: str, seconds: float) -> tuple[Token, str]:
        """Create a token and return it with its text."""
        if not 0 < seconds <= MAX_SECONDS:
            raise UserMistake("a token must end after more than 0 seconds and at most 366 days")
        secret, id_ = secrets.token_urlsafe(32), secrets.token_hex(4)
        now = time.time()
        token = Token(id_, user, now, now + seconds, _hash(secret))
        with self._change() as tokens:
            tokens[id_] = token
        return token, f"{_PREFIX}_{id_}_{secret}"

    def revoke(self, id_: str) -> Token:
        """Delete a token; it stops working at once."""
        with self._change() as tokens:
            if id_ not in tokens:
                raise UserMistake(
                    f"token {id_!r} not found; list them with: gpuyard serve token list"
                )
            return tokens.pop(id_)

    def list(self) -> "list[Token]":
        """Return the tokens that have not ended."""
        return [token for token in self._read().values() if token.expires > time.time()]

    def is_valid(self, id_: str) -> bool:
        """Return whether the token with this ID exists and has not ended."""
        token = self._read().get(id_)
        return token is not None and token.expires > time.time()

    def find(self, text: str) -> Token | None:
        """Return the token of this text if it is valid now."""
        parts = text.split("_", 2) if len(text) <= _MAX_CHARACTERS else []
        if len(parts) != 3 or parts[0] != _PREFIX:
            return None
        token = self._read().get(parts[1])
        if token is None or token.expires <= time.time():
            return None
        return token if hmac.compare_digest(token.sha256, _hash(parts[2])) else None

    def _read(self) -> dict[str, Token]:
        try:
            status = self._path.stat()
            version = (status.st_mtime_ns, status.st_ino)
            if version != self._read_at:
                document = json.loads(self._path.read_text(encoding="utf-8"))
                self._tokens = {row["id"]: Token(**row) for row in document["tokens"]}
                self._read_at = version
        except FileNotFoundError:
            self._tokens, self._read_at = {}, None
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise GpuyardError(
                f"{self._path} cannot be read ({error}); delete it and create new tokens"
            ) from error
        return self._tokens

    @contextmanager
    def _change(self) -> Iterator[dict[str, Token]]:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (self._path.parent / "tokens.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            now = time.time()
            tokens = {id_: t for id_, t in self._read().items() if t.expires > now}
            yield tokens
            text = json.dumps({"tokens": [asdict(token) for token in tokens.values()]}, indent=1)
            write_text(self._path, text + "\n", mode=0o600)


def _hash(secret: str) -> str:
    # the secret has 256 random bits, so a slow hash for passwords would add nothing
    return hashlib.sha256(secret.encode()).hexdigest()
