"""The file with the tokens of a service, each with its role."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from os import PathLike
from typing import Literal

from invariant_bandits.checks import InputError

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
        If the file cannot be read, others can write to it, or any line is wrong. No message has a word of the file.
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
            raise InputError(f"{where}: the same token as in line {lines[digest]}; each needs a token of its own")
        tokens[digest], lines[digest] = role, number
    if not tokens:
        raise InputError(f"token file {os.fspath(path)}: it has no token")
    return tokens


def _content(path: str | PathLike[str]) -> bytes:
    """The content of a file that only its owner can write to."""
    try:
        with open(path, "rb") as file:
            if stat.S_IMODE(os.fstat(file.fileno()).st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
                raise InputError(f"token file {os.fspath(path)}: others can write to it; run chmod go-w on it")
            return file.read()
    except OSError as error:
        raise InputError(f"token file {os.fspath(path)}: {error.strerror}") from None
