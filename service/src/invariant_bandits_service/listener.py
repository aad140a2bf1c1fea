"""Between the network and the application: limits of connections, logs, the end.

Connections have time limits and a bound per address. The service ends within a stated time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from starlette.types import ASGIApp, Scope
from uvicorn import Config, Server
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from invariant_bandits.checks import InputError, escape_control_chars, escape_line

log = logging.getLogger("invariant_bandits_service")
access_log = logging.getLogger("invariant_bandits_service.access")
HEALTH = ("/healthz", "/readyz")
"""Paths that are answered also when too many requests are under way."""


def route_path(scope: Scope) -> str:
    """Return the path of a request without the prefix that a proxy has taken away."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


# -- logs --


def log_request(scope: Scope, status: int, seconds: float) -> None:
    """Log one line about a request; those for the health only where details are wanted."""
    if not access_log.isEnabledFor(logging.INFO):
        return
    level = logging.DEBUG if route_path(scope) in HEALTH else logging.INFO
    about = {
        "client": (scope.get("client") or ("-",))[0],
        "method": scope["method"],
        "path": scope["path"],
        "status": status,
        "milliseconds": round(1e3 * seconds, 3),
    }
    access_log.log(
        level, "%s", " ".join(map(str, about.values())), extra={"request": about}
    )


class LogFormatter(logging.Formatter):
    """One line per record: control characters are escaped, so that no name can forge a line.

    Parameters
    ----------
    as_json : bool
        Whether a line is a JSON object: time, level, logger, message, and what the record adds.
    """

    def __init__(self, as_json: bool = False) -> None:
        super().__init__()
        self.as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; as text, a traceback follows it."""
        about = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(
                timespec="milliseconds"
            ),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        if self.as_json:
            about |= {
                "level": record.levelname.lower(),
                **getattr(record, "request", {}),
            }
            return json.dumps(about | {"traceback": trace} if trace else about)
        line = escape_line(" ".join(about.values()))
        return f"{line}\n{escape_control_chars(trace)}" if trace else line


def log_to_stderr(
    level: str = "info", *, as_json: bool = False, access: bool = False
) -> None:
    """Send the logs of a service to standard error, those of this level and above.

    With `access`, every request has a line.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter(as_json))
    logging.basicConfig(level=level.upper(), handlers=[handler])
    access_log.setLevel(logging.NOTSET if access else logging.WARNING)


# -- connections --

MOST_CONNECTIONS = 2_000
"""Open connections; fewer where the system allows fewer open files."""
MOST_PER_ADDRESS = 1_000
"""Open connections of one address, so that one client leaves room for others."""
OTHER_FILES = 128
"""Open files that are not connections: the store, logs, libraries."""
LONGEST_HEADER = 16 << 10
"""Bytes of the first line and the headers of a request."""
HEADER_SECONDS = 10.0
"""How long a client may take for its headers."""
BODY_SECONDS = 20.0
"""How long a client may take for the body of a request."""
SLOWEST_BODY = 16 << 10
"""Bytes of a body for which it may take one second more."""
READ_SECONDS = 30.0
"""How long a client may leave a response unread."""
IDLE_SECONDS = 30
"""How long a connection stays open between two requests."""
END_SECONDS = 5
"""How long requests that are under way may take once the service is asked to end."""


class GuardedProtocol(HttpToolsProtocol):
    """HTTP over one connection, which a client cannot hold by being slow.

    If too many connections are open, those are closed that have waited longest for the rest of a request:
    a client that sends its request at once finds room, whatever others hold open.
    """

    since: float | None = None
    """Since when a request has begun to come and is not complete."""
    read_at = 0.0
    """When the client was last seen to take its response, or to have none to take."""
    in_headers = True
    """Whether the headers of the next request are not complete."""
    received = 0
    """Bytes of these headers, or of the body after them."""

    @property
    def address(self) -> str:
        """Of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_busy(self) -> bool:
        """Whether a whole request is being answered to a client that reads."""
        cycle: Any = self.cycle  # None before the first request
        is_under_way = cycle is not None and not cycle.response_complete
        return is_under_way and self.since is None and not self.flow.write_paused

    def connection_made(self, transport: Any) -> None:
        """Take a connection, and close others if there are too many."""
        super().connection_made(transport)
        self.since = self.read_at = self.loop.time()
        if len(self.connections) > min(MOST_PER_ADDRESS, most_connections()):
            self._make_room()

    def _make_room(self) -> None:
        """Close the connections that have waited longest.

        A sixteenth of what is allowed is closed, of the address that has most of them; or this one if
        all are busy.
        """
        others = [
            each for each in self.connections if isinstance(each, GuardedProtocol)
        ]
        address, count = Counter(each.address for each in others).most_common(1)[0]
        if count <= MOST_PER_ADDRESS and len(others) <= most_connections():
            return
        slow = [
            each
            for each in others
            if each.address == address and each is not self and not each.is_busy
        ]
        # first those that never asked, then those that have waited longest
        slow.sort(key=lambda each: (each.cycle is not None, each.since or 0.0))
        for each in slow[: most_connections() // 16] or [self]:
            each.drop()

    def drop(self) -> None:
        """Close the connection without a word."""
        self.connections.discard(self)
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take a part of a request; refuse headers without end."""
        self.since = self.since or self.loop.time()
        self.received += len(data)
        super().data_received(data)
        if self.in_headers and self.received > LONGEST_HEADER:
            self.send_400_response(
                f"The headers must have at most {LONGEST_HEADER} bytes."
            )

    def on_headers_complete(self) -> None:
        """Begin to answer."""
        self.in_headers = False
        self.received = 0
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note that nothing more has to come."""
        self.since = None
        self.in_headers = True
        self.received = 0
        super().on_message_complete()

    def is_too_slow(self, moment: float) -> bool:
        """Return whether the client has used up its time for headers, body or reading.

        This is called once per second.
        """
        if not self.flow.write_paused:
            self.read_at = moment
        allowed = HEADER_SECONDS
        if not self.in_headers:
            allowed = BODY_SECONDS + self.received / SLOWEST_BODY
        is_late = self.since is not None and moment - self.since > allowed
        return is_late or moment - self.read_at > READ_SECONDS


@cache
def most_connections() -> int:
    """Return how many connections may be open; the system's limit of open files is raised if it can be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_CONNECTIONS + OTHER_FILES
    if 0 <= soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft < 0:
        return MOST_CONNECTIONS
    return max(16, min(MOST_CONNECTIONS, soft - OTHER_FILES))


def check_port(host: str, port: int) -> None:
    """Raise unless the service can listen there: before it makes or changes a store."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        words = f"{host}:{port} cannot be listened at: {error.strerror or error}"
        raise InputError(f"port: {words}") from None


class _HealthHandler(BaseHTTPRequestHandler):
    """Answers for a process that waits for its turn: it lives, and does nothing else yet."""

    def do_GET(self) -> None:
        """Answer one request."""
        path = self.path.partition("?")[0]
        status = 200 if path.endswith(("/healthz", "/metrics")) else 503
        body = b'{"status": "waiting for its turn"}\n'
        if path.endswith("/metrics"):
            body = (
                b"# TYPE invariant_bandits_standby gauge\ninvariant_bandits_standby 1\n"
            )
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name that the standard library calls

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: a prober asks every second."""


@contextmanager
def answering_health(host: str, port: int) -> Iterator[None]:
    """Answer /healthz and /metrics while a process waits for its turn; all else is refused with 503."""

    class HealthServer(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        daemon_threads = True

    with HealthServer((host, port), _HealthHandler) as server:
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class Listener(Server):
    """Listens until it is asked to end.

    Parameters
    ----------
    app : ASGIApp
    has_failed : callable
        Whether the service cannot go on.
    say : callable
        Takes a line when it listens.
    host, port : str, int
        Where to listen.
    root_path : str
        What a proxy takes away from the beginning of paths.
    proxies : sequence of str
        Addresses of proxies that say who asks (X-Forwarded-For).
    """

    def __init__(
        self,
        app: ASGIApp,
        has_failed: Callable[[], bool],
        say: Callable[[str], None],
        *,
        host: str,
        port: int,
        root_path: str = "",
        proxies: Sequence[str] = ("127.0.0.1",),
    ) -> None:
        config = Config(
            app,
            host=host,
            port=port,
            root_path=root_path,
            forwarded_allow_ips=list(proxies),
            http=GuardedProtocol,
            ws="none",
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=END_SECONDS,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
        )
        super().__init__(config)
        self.has_failed = has_failed
        self.say = say

    async def startup(self, sockets: Any = None) -> None:
        """Begin to listen."""
        await super().startup(sockets=sockets)
        if self.started:
            host = (
                f"[{self.config.host}]" if ":" in self.config.host else self.config.host
            )
            self.say(
                f"serving at http://{host}:{self.config.port}{self.config.root_path}"
            )

    async def on_tick(self, counter: int) -> bool:
        """Close connections of clients that are too slow, once per second; return whether to end."""
        if counter % 10 == 0:
            try:
                self._drop_slow()
            except Exception:  # it would end the server
                log.exception("slow connections could not be closed")
        return await super().on_tick(counter) or self.has_failed()

    def _drop_slow(self) -> None:
        moment = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            if isinstance(connection, GuardedProtocol) and connection.is_too_slow(
                moment
            ):
                connection.drop()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """End in order; at once when asked a second time, as a power cut would, which loses nothing."""
        if self.should_exit:
            os._exit(128 + sig)
        super().handle_exit(sig, frame)

    def listen(self) -> bool:
        """Answer requests until asked to end; return whether it ever listened."""
        # uvicorn raises these signals again after an end in order
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        self.run()
        return self.started
