"""Who may do what: every route with every kind of token, token files that are refused, tokens that are
exchanged.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request

from invariant_bandits.checks import InputError
from invariant_bandits_service import access, commands
from invariant_bandits_service.access import SHORTEST, Role, read_tokens
from invariant_bandits_service.learners import OpenLearner
from invariant_bandits_service.operations import OPERATIONS
from invariant_bandits_service.responses import RefusedError
from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from local_client import TestClient
from routes import routes_of
from started_service import PATIENCE, service

TOKENS = {role: f"{role}-0123456789abcdef" for role in ("read", "decide", "admin")}
WRONG = "wrong-0123456789abcdef"
RANKS = {
    "anyone": 0,
    "no token": 0,
    "wrong token": 0,
    "read": 1,
    "decide": 2,
    "admin": 3,
}
NEEDED = {
    "anyone": {
        "GET /healthz",
        "GET /readyz",
        "GET /openapi.json",
        "GET /docs",
        "GET /",
        "GET /page/{name}",
    },
    "read": {
        "GET /metrics",
        "GET /v1/overview",
        "GET /v1/decisions",
        "GET /v1/decisions/{id:path}",
        "GET /v1/models",
        *(
            f"GET {model}{part}"
            for model in ("/v1/model", "/v1/models/{model}")
            for part in ("", "/versions", "/learn", "/arms", "/configuration")
        ),
    },
    "decide": {
        "POST /v1/decisions",
        "POST /v1/decisions/{id:path}/activate",
        "POST /v1/rewards",
        "POST /ofrep/v1/evaluate/flags",
        "POST /ofrep/v1/evaluate/flags/{key:path}",
    },
    "admin": {
        "POST /v1/models",
        "POST /v1/clock/confirm",
        "POST /v1/erasures",
        "DELETE /v1/models/{model}",
        *(
            f"{call[0]} {model}{call[1]}"
            for model in ("/v1/model", "/v1/models/{model}")
            for call in (
                ("POST", "/versions"),
                ("DELETE", "/versions/{version}"),
                ("POST", "/versions/{version}/activate"),
                ("POST", "/rollback"),
                ("POST", "/learn"),
                ("POST", "/arms"),
                ("DELETE", "/arms/{label:path}"),
                ("PUT", "/configuration"),
            )
        ),
    },
}
"""The role that each route needs, by hand."""
ROLES = {call: role for role, calls in NEEDED.items() for call in calls}


def token_file(folder: Path, text: str) -> None:
    """Write a file that nobody else can write to."""
    (folder / "tokens").write_bytes(text.encode(errors="surrogateescape"))
    (folder / "tokens").chmod(0o600)


def headers_of(caller: str) -> Iterator[dict[str, str]]:
    """The headers that a caller may send."""
    if caller == "no token":
        yield from (
            {},
            {"Authorization": "Bearer "},
            {"Authorization": f"Basic {TOKENS['admin']}"},
        )
    else:
        token = TOKENS.get(caller, WRONG)
        yield {"Authorization": f"Bearer {token}"}


def calls_of(app: Starlette) -> list[tuple[str, str]]:
    """Method and path, as it was registered, of every route of an application."""
    return [
        (method, path) for path, methods in routes_of(app) for method in sorted(methods)
    ]


def address_of(path: str) -> str:
    """An address that leads to a route."""
    for name in ("id:path", "key:path", "label:path", "model", "version", "name"):
        path = path.replace(
            f"{{{name}}}", {"model": "default", "name": "page.js"}.get(name, "x")
        )
    return path


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder = tmp_path_factory.mktemp("guarded")
    token_file(folder, "".join(f"{role} {token}\n" for role, token in TOKENS.items()))
    settings = ServiceSettings(
        store=str(folder / "d.db"), host="0.0.0.0", token_file=folder / "tokens"
    )
    with TestClient(
        Application(open_service(settings)), raise_server_exceptions=False
    ) as client:
        yield client


def test_every_route_has_a_row_in_the_table_and_every_row_a_route(
    guarded: TestClient,
) -> None:
    calls = {
        f"{method} {path}" for method, path in calls_of(guarded.app) if method != "HEAD"
    }  # type: ignore[arg-type]
    assert calls == set(ROLES)
    assert len(ROLES) == sum(map(len, NEEDED.values())), "a route is in the table twice"


def test_every_address_of_the_table_leads_to_its_route(
    guarded: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The route is the one whose operation the metrics count."""
    monkeypatch.setattr(access, "WRONG_TOKENS", (1.0, 1e6))
    metrics = guarded.app.state.service.metrics  # type: ignore[attr-defined]
    names = {}
    for each in OPERATIONS:
        for path in each.paths():
            names[f"{each.method} {each.prefix}{path}"] = each.name
    for method, path in calls_of(guarded.app):  # type: ignore[arg-type]
        name = names[f"{'GET' if method == 'HEAD' else method} {path}"]
        before = metrics.latencies().get(name, {}).get("count", 0)
        guarded.request(method, address_of(path))
        assert metrics.latencies()[name]["count"] == before + 1, path


@pytest.mark.parametrize(
    "caller", ["no token", "wrong token", "read", "decide", "admin"]
)
def test_every_route_is_for_those_who_may_and_for_no_one_else(
    guarded: TestClient, caller: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        access, "WRONG_TOKENS", (1.0, 1e6)
    )  # wrong ones are slowed, which is tested below
    events = guarded.app.state.service.engine.state.seq  # type: ignore[attr-defined]
    forbidden = 403 if caller in TOKENS else 401
    wrong = []
    may_change = False
    for method, path in calls_of(guarded.app):  # type: ignore[arg-type]
        needed = ROLES[f"{'GET' if method == 'HEAD' else method} {path}"]
        is_allowed = RANKS[caller] >= RANKS[needed]
        may_change |= is_allowed and method not in ("GET", "HEAD")
        address = address_of(path)
        for headers in headers_of(caller):
            status = guarded.request(method, address, headers=headers).status_code
            if status in (401, 403, 405, 500) if is_allowed else status != forbidden:
                wrong.append((method, address, headers, status))
    assert wrong == []
    assert may_change or guarded.app.state.service.engine.state.seq == events  # type: ignore[attr-defined]


def test_wrong_tokens_are_slowed_and_right_ones_of_the_same_address_are_not() -> None:
    tokens: dict[str, Role] = {hashlib.sha256(b"right").hexdigest(): "admin"}
    clock = [0.0]
    guard = access.Access(tokens)

    def status(token: str, address: str = "192.0.2.1") -> int:
        headers = [(b"authorization", f"Bearer {token}".encode())]
        scope = {"type": "http", "headers": headers, "client": (address, 1)}
        try:
            guard.check(Request(scope), "read")
        except RefusedError as refused:
            return refused.status
        return 200

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(access.time, "monotonic", lambda: clock[0])
        assert status("right") == 200
        assert [status(f"guess {n}") for n in range(12)] == [401] * 10 + [429] * 2
        others = [
            status("right"),
            status("guess", "192.0.2.2"),
            status("right", "192.0.2.2"),
        ]
        assert others == [200, 401, 200]
        assert [status(f"guess {n}", "192.0.2.3") for n in range(11)] == [401] * 10 + [
            429
        ]
        assert status("right", "192.0.2.3") == 200, "it was right elsewhere"
        fresh = access.Access(tokens)
        guard = fresh
        assert {status(f"guess {n}") for n in range(50)} == {401, 429}
        assert status("right") == 200, (
            "a stranger behind the same proxy keeps nobody out"
        )
        clock[0] = 1.5
        assert [status("guess"), status("guess")] == [401, 429]
        for n in range(30_000):
            status("guess", f"address {n}")
        assert len(guard._buckets) <= access.MOST_REMEMBERED


@pytest.mark.parametrize(
    "name", ["a\nadmin: all", "a\n", "\x1b[2J", "a b", "", "-a", "a" * 65, "ä"]
)
def test_no_model_has_a_name_that_could_forge_a_line(
    loops: TestClient, fitted_file: Path, name: str
) -> None:
    octets = fitted_file.read_bytes()
    before = loops.get("/v1/models").json()
    assert loops.post("/v1/models", json={"model": name}).status_code == 422
    for path in ("/v1/models", "/v1/model/versions"):
        if name:
            assert loops.post(
                path, params={"model": name}, content=octets
            ).status_code in (404, 422)
    engine = loops.app.state.service.engine  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="a name has"):
        engine.call(commands.add_version(name, OpenLearner(), "file"), alone=True)
    assert loops.get("/v1/models").json() == before


GOOD = "0123456789abcdef"
MALFORMED = {
    "empty": ("", "no token"),
    "remarks only": ("# nothing\n\n", "no token"),
    "a role alone": (f"admin {GOOD}\nread\n", "line 2: must be"),
    "a role and a blank": (f"admin {GOOD}\nadmin \n", "line 2: must be"),
    "a token alone": (f"{GOOD}\n", "line 1: must be"),
    "a role and a remark": (f"read # {GOOD}\n", "line 1: must be"),
    "a role and a remark without a blank": (f"read #{GOOD}\n", "line 1: must be"),
    "three words": (f"admin {GOOD} more\n", "line 1: must be"),
    "a role that does not exist": (f"# who\nboss {GOOD}\n", "line 2: must be"),
    "capitals": (f"Admin {GOOD}\n", "line 1: must be"),
    "token and role exchanged": (f"{GOOD} admin\n", "line 1: must be"),
    "a short token": (
        f"read {GOOD[1:]}\n",
        f"line 1: must be .* a token of {SHORTEST} or more",
    ),
    "a token twice": (
        f"read {GOOD}\n\nread {GOOD}\n",
        "line 3: an earlier line has the same token",
    ),
    "a token with two roles": (
        f"read {GOOD}\nadmin {GOOD}\n",
        "line 2: an earlier line has the same token",
    ),
    "a token with an umlaut": (f"read {GOOD}ä\n", "line 1: must be"),
    "no text": (f"read {GOOD}\udcff\n", "line 1: must be"),
    "a control character": (f"read {GOOD}\0\n", "line 1: must be"),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_token_file_is_refused_by_its_line_and_without_the_token(
    tmp_path: Path, kind: str
) -> None:
    text, message = MALFORMED[kind]
    token_file(tmp_path, text)
    with pytest.raises(InputError, match=message) as refused:
        read_tokens(tmp_path / "tokens")
    assert GOOD[1:] not in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o664])
def test_a_token_file_that_others_can_write_is_refused(
    tmp_path: Path, mode: int
) -> None:
    token_file(tmp_path, f"admin {GOOD}\n")
    (tmp_path / "tokens").chmod(mode)
    with pytest.raises(InputError, match="others can write"):
        read_tokens(tmp_path / "tokens")
    (tmp_path / "tokens").chmod(mode & ~0o022)
    assert list(read_tokens(tmp_path / "tokens").values()) == ["admin"]


def test_a_token_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(InputError, match="token file"):
            read_tokens(path)


def test_signs_blanks_and_remarks_of_a_token_file(tmp_path: Path) -> None:
    token_file(
        tmp_path, f"# who\r\n  read\t{GOOD}#1  # a remark: ä\r\n\r\ndecide {GOOD}#2"
    )
    assert list(read_tokens(tmp_path / "tokens").values()) == ["read", "decide"]


@pytest.mark.system
def test_a_service_does_not_start_with_a_malformed_token_file(tmp_path: Path) -> None:
    token_file(tmp_path, "read\n")
    command = [
        sys.executable,
        "-c",
        "from invariant_bandits.cli import main; main()",
        "serve",
        "--port",
        "1",
    ]
    done = subprocess.run(
        [*command, "--token-file", "tokens"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "token file tokens, line 1: must be" in done.stderr
    assert os.listdir(tmp_path) == ["tokens"]


def until(holds: Callable[[], bool]) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


@pytest.mark.system
def test_a_hangup_exchanges_the_tokens_and_a_bad_file_leaves_them(
    tmp_path: Path,
) -> None:
    token_file(tmp_path, f"admin {TOKENS['admin']}\n")
    with service(tmp_path, "--token-file", "tokens") as started:
        (said,) = tmp_path.glob("service-*.txt")

        def status(token: str) -> int:
            return started.ask(
                "GET", "/v1/models", headers={"Authorization": f"Bearer {token}"}
            )[0]

        assert (status(TOKENS["admin"]), status(TOKENS["read"])) == (200, 401)
        token_file(tmp_path, f"read {TOKENS['read']}\n")
        assert (status(TOKENS["admin"]), status(TOKENS["read"])) == (
            200,
            401,
        )  # not before it is asked to
        started.process.send_signal(signal.SIGHUP)
        until(lambda: "SIGHUP: read 1" in said.read_text())
        assert (status(TOKENS["admin"]), status(TOKENS["read"])) == (401, 200)
        for text in (f"read {TOKENS['decide']}\nadmin\n", ""):
            before = said.read_text().count("the tokens stay as they were")
            token_file(tmp_path, text)
            started.process.send_signal(signal.SIGHUP)
            until(
                lambda before=before: (
                    said.read_text().count("the tokens stay as they were") > before
                )
            )  # type: ignore[misc]
            assert (status(TOKENS["decide"]), status(TOKENS["read"])) == (401, 200)
        assert not any(token in said.read_text() for token in TOKENS.values())
        assert started.end() == 0


@pytest.mark.system
def test_a_hangup_without_a_token_file_changes_nothing(tmp_path: Path) -> None:
    with service(tmp_path) as started:
        (said,) = tmp_path.glob("service-*.txt")
        started.process.send_signal(signal.SIGHUP)
        until(lambda: "no token file" in said.read_text())
        assert started.ask("GET", "/v1/models")[0] == 200
        assert started.end() == 0


def test_a_caller_may_do_what_the_role_includes_and_is_named_without_the_token() -> (
    None
):
    digest = hashlib.sha256(b"a long token to decide").hexdigest()
    decider = access.Caller("decide", digest)
    assert decider.may("read")
    assert decider.may("decide")
    assert not decider.may("admin")
    assert decider.name == f"decide token {digest[:8]}"
    # the name alone gives no authority
    assert not access.Caller(None, "admin").may("read")
    assert access.LOCAL.may("admin")
