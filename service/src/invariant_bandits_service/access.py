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
from typing import Literal, cast

from starlette.requests import Request

from invariant_bandits.checks import InputError
from invariant_bandits_service.responses import RefusedError

Role = Literal["read", "decide", "admin"]
RANKS: dict[Role, int] = {"read": 0, "decide": 1, "admin": 2}
SHORTEST = 16
"""Characters of a token: 64 random bits in hexadecimal digits cannot be guessed over a network."""
WRONG_TOKENS = (1.0, 10.0)
"""Wrong tokens that an address may send: per second, and at once."""
MOST_REMEMBERED = 10_000
"""Tokens and addresses whose rates are remembered."""
NEEDED = f"read, decide or admin, then a token of {SHORTEST} or more ASCII letters, digits and signs"
LINE = re.compile(
    rf"(?P<role>read|decide|admin)[ \t]+(?P<token>(?!#)[!-~]{{{SHORTEST},}})(?:[ \t]+#.*)?"
)


@dataclass(frozen=True)
class Caller:
    """Who makes a request.

    Parameters
    ----------
    role : Role or None
        What the caller may do; None: only what anyone may.
    token_digest : str
        SHA-256 of the caller's token in hexadecimal digits; empty without a token.
    """

    role: Role | None = None
    token_digest: str = ""

    @property
    def name(self) -> str:
        """Short name for the audit and for events; it does not give the token away."""
        if self.role is None:
            return ""
        if not self.token_digest:
            return "anyone on this machine"
        return f"{self.role} token {self.token_digest[:8]}"

    def may(self, needed: Role) -> bool:
        """Return whether the caller has a role, or one that includes it."""
        return self.role is not None and RANKS[self.role] >= RANKS[needed]


LOCAL = Caller("admin")
"""The caller where no tokens are required, which is on loopback only."""


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
    where = f"token file {os.fspath(path)}"
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read()
    except OSError as error:
        raise InputError(f"{where}: {error.strerror}") from None
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(f"{where}: others can write to it; run chmod go-w on it")
    for number, line in enumerate(content.splitlines(), start=1):
        text = line.decode(errors="replace").strip()
        if not text or text.startswith("#"):
            continue
        if (match := LINE.fullmatch(text)) is None:
            raise InputError(f"{where}, line {number}: must be {NEEDED}")
        digest = hashlib.sha256(match["token"].encode()).hexdigest()
        if digest in tokens:
            same = "an earlier line has the same token; each needs a token of its own"
            raise InputError(f"{where}, line {number}: {same}")
        tokens[digest] = cast("Role", match["role"])
    if not tokens:
        raise InputError(f"{where}: it has no token")
    return tokens


@dataclass
class Access:
    """Tokens and what they allow. Without tokens every caller may do everything: for loopback only.

    Parameters
    ----------
    tokens : mapping of str to Role
        SHA-256 of each token in hexadecimal digits, and its role.
    rate : float
        Decisions, rewards and other requests per second and token; 0 is without bound.
    """

    tokens: Mapping[str, Role] = field(default_factory=dict)
    rate: float = 0.0
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Requests, or wrong tokens of an address, that may still come, and when there were so many."""

    def check(self, request: Request, needed: Role) -> Caller:
        """Return the caller, or refuse one who may not ask this."""
        if not self.tokens:
            _refuse_other_sites(request)
            self._slow_down(LOCAL)
            return LOCAL
        token = _token(request)
        address = request.client.host if request.client else ""
        digest = hashlib.sha256(token.encode()).hexdigest()
        # all are compared, so that the time does not show which
        roles = [
            role
            for known, role in self.tokens.items()
            if hmac.compare_digest(known, digest)
        ]
        if not roles:
            # right tokens pass: others may share their address, such as a proxy's
            if not self._may_guess(address, cost=1.0 if token else 0.0):
                raise RefusedError(
                    429,
                    "this address sent too many wrong tokens",
                    headers={"Retry-After": "1"},
                )
            words = (
                "the token is not known"
                if token
                else "a token is needed: Authorization: Bearer TOKEN"
            )
            raise RefusedError(401, words, headers={"WWW-Authenticate": "Bearer"})
        caller = Caller(roles[0], digest)
        if not caller.may(needed):
            raise RefusedError(
                403,
                f"this needs a token with the role {needed!r}, this one has {caller.role!r}",
            )
        self._slow_down(caller)
        return caller

    def _may_guess(self, address: str, cost: float) -> bool:
        """Return whether an address has not sent too many wrong tokens, and count the cost."""
        per_second, at_once = WRONG_TOKENS
        return self._take(address, per_second, at_once, cost)

    def charge(self, caller: Caller, more: int) -> None:
        """Count so many more decisions or rewards of a request that was let in: the next ones wait for it."""
        if self.rate:
            left, since = self._buckets[caller.name]
            self._buckets[caller.name] = (left - more, since)

    def _slow_down(self, caller: Caller) -> None:
        if self.rate and not self._take(caller.name, self.rate, max(self.rate, 1.0)):
            words = f"at most {self.rate:g} decisions, rewards and other requests per second"
            raise RefusedError(429, words, headers={"Retry-After": "1"})

    def _take(self, who: str, rate: float, most: float, cost: float = 1.0) -> bool:
        """Return whether a bucket that fills by `rate` per second up to `most` has 1, and take the cost."""
        moment = time.monotonic()
        left, since = self._buckets.get(who, (most, moment))
        left = min(most, left + (moment - since) * rate)
        self._buckets.pop(who, None)  # the one that was used longest ago comes first
        self._buckets[who] = (left - cost if left >= 1.0 else left, moment)
        if len(self._buckets) > MOST_REMEMBERED:
            del self._buckets[next(iter(self._buckets))]
        return left >= 1.0


def _refuse_other_sites(request: Request) -> None:
    """Refuse requests that a page of another site makes through a browser, unless tokens are required.

    Browsers say which site asks (Origin, Sec-Fetch-Site). Names of this service are checked elsewhere.
    """
    origin = request.headers.get("origin")
    own = f"{request.url.scheme}://{request.url.netloc}"
    if origin not in (None, own) or request.headers.get("sec-fetch-site") in (
        "cross-site",
        "same-site",
    ):
        raise RefusedError(
            403, "a page of another site may not ask a service without tokens"
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    address = address_of(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the numeric address that a host is named by; None if it is a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _token(request: Request) -> str:
    """Return the caller's token; empty if there is none."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
