"""Clients that are slow, endless or many; foreign host names; logs that no name can forge; an end in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from invariant_bandits.checks import InputError
from invariant_bandits_service import listener
from invariant_bandits_service.listener import LogFormatter
from invariant_bandits_service.operations import Service
from invariant_bandits_service.serve import Application, ServiceSettings, open_service
from local_client import TestClient
from routes import routes_of
from served_models import running, serve
from started_service import PATIENCE, Started, service

FLOOD = 2_100
REQUEST = b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\n"


Connect = Callable[..., socket.socket]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes connections over which something was sent."""
    with ExitStack() as stack:

        def connect(started: Started, sent: bytes = b"") -> socket.socket:
            port = int(started.url.rpartition(":")[2])
            connection = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
            )
            connection.sendall(sent)
            return connection

        yield connect


def bytes_taken(connection: socket.socket, most: int = 64 << 20) -> int:
    """How much can be sent before the other side closes a connection."""
    sent = 0
    try:
        while sent < most:
            sent += connection.send(b"a" * (64 << 10))
    except ConnectionError:
        pass
    return sent


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other side closes a connection, whatever it says before."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


def with_settings(**constants: float) -> tuple[str, ...]:
    """A program that serves with other limits."""
    changes = "; ".join(
        f"listener.{name} = {value}" for name, value in constants.items()
    )
    imports = "from invariant_bandits_service import listener; from invariant_bandits.cli import main"
    return (sys.executable, "-c", f"{imports}; {changes}; main()", "serve")


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for as many connections as the flood needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= hard < FLOOD + 500:
        pytest.skip(f"the system allows {hard} open files only")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FLOOD + 500), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.system
@pytest.mark.usefixtures("many_files")
def test_clients_that_never_finish_their_headers_keep_no_one_out(
    tmp_path: Path, connect: Connect
) -> None:
    with service(tmp_path) as started:
        for _ in range(FLOOD):
            connect(started, b"GET /healthz HTTP/1.1\r\nX: 1\r\n")
        answers = [
            started.ask("GET", path)[0]
            for path in ("/healthz", "/v1/models")
            for _ in range(20)
        ]
        assert answers == [200] * 40
        assert (
            bytes_taken(connect(started, b"GET / HTTP/1.1\r\nX: "), 64 << 20) < 64 << 20
        )


@pytest.mark.system
def test_a_slow_client_is_cut_off_and_does_not_hold_up_the_end(
    tmp_path: Path, connect: Connect
) -> None:
    limits = {"HEADER_SECONDS": 1.0, "BODY_SECONDS": 1.0, "END_SECONDS": 1}
    with service(tmp_path, command=with_settings(**limits)) as started:
        silent, headers = connect(started), connect(started, REQUEST)
        body = connect(started, REQUEST + b"Content-Length: 99\r\n\r\n{")
        unknown = connect(
            started,
            b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
        )
        assert all(
            is_closed(connection) for connection in (silent, headers, body, unknown)
        )
        assert started.ask("GET", "/healthz")[0] == 200
        connect(started, REQUEST + b"Content-Length: 99\r\n\r\n{")
        assert started.end() == 0


@pytest.mark.system
def test_a_client_that_does_not_read_its_responses_is_cut_off(
    tmp_path: Path, connect: Connect
) -> None:
    asked, request = 2_000, b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with service(tmp_path, command=with_settings(READ_SECONDS=1.0)) as started:
        lazy = connect(started, asked * request)
        time.sleep(4.0)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while part := lazy.recv(1 << 16):
                taken += len(part)
        assert taken < asked * 10_000, "each response has more bytes than that"


@pytest.mark.system
def test_a_second_signal_ends_at_once(tmp_path: Path, connect: Connect) -> None:
    with service(tmp_path, command=with_settings(END_SECONDS=3_600)) as started:
        assert (
            started.ask("POST", "/v1/decisions", {"arms": ["a"], "id": "one"})[0] == 200
        )
        connect(started, REQUEST + b"Content-Length: 99\r\n\r\n{")
        time.sleep(0.2)
        started.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert started.process.poll() is None, "it waits for the body"
        assert started.end() == 128 + signal.SIGTERM
    with service(tmp_path) as started:
        assert started.ask("GET", "/v1/decisions/one")[0] == 200


@pytest.mark.parametrize(
    ("host", "shown"), [("::1", "[::1]"), ("127.0.0.1", "127.0.0.1")]
)
def test_the_address_is_said_as_a_browser_takes_it(
    monkeypatch: pytest.MonkeyPatch, host: str, shown: str
) -> None:
    async def begin(server: listener.Listener, sockets: object = None) -> None:
        server.started = True

    monkeypatch.setattr(listener.Server, "startup", begin)
    lines: list[str] = []
    where = {"host": host, "port": 8080, "root_path": "/bandits"}
    asyncio.run(
        listener.Listener(begin, lambda: False, lines.append, **where).startup()
    )  # type: ignore[arg-type]
    assert lines == [f"serving at http://{shown}:8080/bandits"]


def test_a_connection_that_cannot_be_closed_does_not_end_the_server(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(server: listener.Listener) -> None:
        raise RuntimeError("the transport is gone")

    monkeypatch.setattr(listener.Listener, "_drop_slow", fail)
    server = listener.Listener(None, lambda: False, print, host="127.0.0.1", port=1)  # type: ignore[arg-type]
    assert asyncio.run(server.on_tick(0)) is False
    assert "slow connections could not be closed" in caplog.text


def test_of_many_connections_those_are_closed_that_wait_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listener, "MOST_PER_ADDRESS", 20)
    connections: set[listener.GuardedProtocol] = set()
    dropped: list[int] = []

    def connection(
        number: int, address: str, since: float | None
    ) -> listener.GuardedProtocol:
        made = listener.GuardedProtocol.__new__(listener.GuardedProtocol)
        made.connections, made.client, made.since, made.cycle = (
            connections,
            (address, 1),
            since,
            None,
        )  # type: ignore[assignment]
        made.drop = lambda: dropped.append(number)  # type: ignore[method-assign]
        connections.add(made)
        return made

    for number in range(20):
        connection(number, "192.0.2.1", float(number))
    other = connection(20, "192.0.2.2", 0.0)
    other._make_room()
    assert dropped == [], "neither address has too many"
    connection(21, "192.0.2.1", 21.0)._make_room()
    monkeypatch.setattr(listener, "most_connections", lambda: 32)
    connection(22, "192.0.2.1", 22.0)._make_room()
    assert dropped[-2:] == [0, 1]
    assert not {20, 21, 22} & set(dropped)


@pytest.mark.parametrize(
    "host",
    [
        b"evil.example",
        b"evil.example:8080",
        b"localhost.evil.example",
        b"127.0.0.1.evil.example",
    ],
)
def test_a_foreign_host_name_is_refused_on_every_route(
    tmp_path: Path, host: bytes
) -> None:
    with running(tmp_path / "d.db") as engine:
        serve(engine)
        app = Application(Service(engine), ["bandits.example", "*.shops.example"])
        client = TestClient(app, raise_server_exceptions=False)
        for path, methods in routes_of(app):
            for method in methods:
                answer = client.request(method, path, headers={"host": host.decode()})
                assert answer.status_code == 400, (method, path)
        for own in (
            "localhost",
            "localhost:8080",
            "127.0.0.1:1",
            "[::1]:8080",
            "BANDITS.example",
            "a.shops.example",
        ):
            assert client.get("/healthz", headers={"host": own}).status_code == 200, own


def test_an_application_that_names_no_hosts_answers_only_to_localhost(
    loops: TestClient,
) -> None:
    assert loops.get("/healthz").status_code == 200
    assert loops.get("/healthz", headers={"host": "evil.example"}).status_code == 400


def test_which_host_names_are_allowed(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    anywhere = ServiceSettings(host="0.0.0.0", token_file=tokens)
    assert anywhere.allowed_hosts == ("*",)
    named = ServiceSettings(host="::1", allow_hosts=["bandits.example"])
    assert named.allowed_hosts == ("[::1]", "bandits.example")
    with pytest.raises(InputError, match="allow_hosts"):
        open_service(ServiceSettings(allow_hosts=["a*.example"]))


@pytest.mark.parametrize("as_json", [False, True])
def test_no_name_forges_a_line_of_the_log(as_json: bool) -> None:
    record = logging.LogRecord(
        "audit", logging.INFO, "", 1, "made %s", ("a\nroot: all\x1b[2J",), None
    )
    line = LogFormatter(as_json).format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    if as_json:
        about = json.loads(line)
        assert (about["level"], about["logger"]) == ("info", "audit")
        assert about["message"] == "made a\nroot: all\x1b[2J"
    else:
        assert line.endswith(r"INFO audit made a\nroot: all\x1b[2J")


def test_the_access_log_has_a_line_per_request_and_health_only_in_detail(
    loops: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "invariant_bandits_service.access")
    for path in ("/healthz", "/v1/models", "/nowhere/100%25"):
        loops.get(path)
    lines = [
        record
        for record in caplog.records
        if record.name == "invariant_bandits_service.access"
    ]
    requests = [
        json.loads(LogFormatter(as_json=True).format(record)) for record in lines
    ]
    assert [(line["path"], line["status"]) for line in requests] == [
        ("/v1/models", 200),
        ("/nowhere/100%", 404),
    ]
    assert all(
        line["method"] == "GET" and line["milliseconds"] >= 0.0 for line in requests
    )
    assert "GET /nowhere/100% 404" in lines[-1].getMessage()
