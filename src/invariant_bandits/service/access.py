"""Who may do what: tokens with roles, compared in constant time; a bound on the rate of each."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Literal

from starlette.requests import Request

from invariant_bandits.checks import InputError
from invariant_bandits.service.responses import Limits, RefusedError

Role = Literal["read", "decide", "admin"]
RANKS: dict[Role, int] = {"read": 0, "decide": 1, "admin": 2}
SHORTEST = 16
"""Characters of a token: 64 random bits in hexadecimal digits cannot be guessed over a network."""
LINE = re.compile(r"(?P<role>[^\s#]\S*)[ \t]+(?P<token>[^\s#]\S*)(?:[ \t]+#.*)?")


def read_tokens(path: str | PathLike[str]) -> dict[str, Role]:
    """Read a token file: 'read TOKEN', 'decide TOKEN' or 'admin TOKEN' on each line; # begins a remark.

    Returns
    -------
    dict of str to Role
        SHA-256 of each token in hexadecimal digits, and its role.

    Raises
    ------
    InputError
        If the file cannot be read, others can write to it, or any line is wrong. No message has a word
        of the file.
    """
    tokens: dict[str, Role] = {}
    lines: dict[str, int] = {}
    for number, line in enumerate(_content(path).splitlines(), start=1):
        text = line.decode(errors="replace").strip()
        if not text or text.startswith("#"):
            continue
        where = f"token file {os.fspath(path)}, line {number}"
        match = LINE.fullmatch(text)
        if match is None:
            raise InputError(f"{where}: must be 'read TOKEN', 'decide TOKEN' or 'admin TOKEN'")
        role = next((role for role in RANKS if role == match["role"]), None)
        if role is None:
            raise InputError(f"{where}: the role must be read, decide or admin")
        if re.fullmatch(r"[\x21-\x7e]+", match["token"]) is None:
            raise InputError(f"{where}: a token has letters, digits and signs of ASCII only")
        if len(match["token"]) < SHORTEST:
            raise InputError(f"{where}: a token must have at least {SHORTEST} characters")
        digest = hashlib.sha256(match["token"].encode()).hexdigest()
        if digest in tokens:
            raise InputError(
                f"{where}: the same token as in line {lines[digest]}; each needs a token of its own"
            )
        tokens[digest], lines[digest] = role, number
    if not tokens:
        raise InputError(f"token file {os.fspath(path)}: it has no token")
    return tokens


def _content(path: str | PathLike[str]) -> bytes:
    """The content of a file that only its owner can write to."""
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
                raise InputError(
                    f"token file {os.fspath(path)}: others can write to it; run chmod go-w on it"
                )
            return file.read()
    except OSError as error:
        raise InputError(f"token file {os.fspath(path)}: {error.strerror}") from None


@dataclass
class Bucket:
    """Requests that may still come; refilled with time."""

    left: float
    at: float


@dataclass
class Access:
    """Tokens and what they allow. Without any, everybody may do everything: for loopback only.

    Parameters
    ----------
    tokens : mapping of str to Role
        SHA-256 of each token in hexadecimal digits, and its role.
    limits : Limits
    """

    tokens: Mapping[str, Role] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    _buckets: dict[str, Bucket] = field(default_factory=dict)

    def check(self, request: Request, needed: Role) -> str:
        """Return a short name of the caller for the audit, or refuse a caller who may not ask this."""
        if not self.tokens:
            _refuse_other_sites(request)
            self._slow_down("everybody")
            return "anyone on this machine"
        token = _token(request)
        if token is None:
            raise RefusedError(
                401, "a token is needed: Authorization: Bearer TOKEN", headers={"WWW-Authenticate": "Bearer"}
            )
        digest = hashlib.sha256(token.encode()).hexdigest()
        role: Role | None = None
        for known, allowed in self.tokens.items():  # all of them, so that the time does not show which
            if hmac.compare_digest(known, digest):
                role = allowed
        if role is None:
            raise RefusedError(401, "the token is not known", headers={"WWW-Authenticate": "Bearer"})
        if RANKS[role] < RANKS[needed]:
            raise RefusedError(403, f"this needs a token with the role {needed!r}, this one has {role!r}")
        self._slow_down(digest)
        return f"{role} token {digest[:8]}"

    def _slow_down(self, who: str) -> None:
        rate = self.limits.rate
        if not rate:
            return
        moment = time.monotonic()
        bucket = self._buckets.setdefault(who, Bucket(max(rate, 1.0), moment))
        bucket.left = min(max(rate, 1.0), bucket.left + (moment - bucket.at) * rate)
        bucket.at = moment
        if bucket.left < 1.0:
            raise RefusedError(429, f"at most {rate:g} requests per second", headers={"Retry-After": "1"})
        bucket.left -= 1.0


def _refuse_other_sites(request: Request) -> None:
    """Refuse what a page of another site has a browser ask, where no token says who asks.

    Browsers say which site asks (Origin, Sec-Fetch-Site). It must be this one, under a name of this
    machine: a foreign name that was made to point to it is another site's.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    if origin is None and site is None:
        return  # not a browser
    host = request.url.hostname or ""
    own = origin is None or origin == f"{request.url.scheme}://{request.url.netloc}"
    if not own or site in ("cross-site", "same-site") or not is_loopback(host):
        raise RefusedError(
            403, "pages of other sites may not ask; without tokens this service is for this machine only"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _token(request: Request) -> str | None:
    key = request.headers.get("ocp-apim-subscription-key")
    if key:
        return key
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" and token.strip() else None
