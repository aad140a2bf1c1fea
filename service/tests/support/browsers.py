"""A real browser for tests of pages, or a reason why there is none; and the demonstration, served for it."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from invariant_bandits.simulation.sample_logs import Shop
from invariant_bandits_service.cli.demonstration import (
    DemonstrationPlan,
    Visitors,
    free_port,
    prepared,
)
from invariant_bandits_service.client import Client
from invariant_bandits_service.operations import Service
from invariant_bandits_service.serve import Application

FLAGS = (
    *(
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ),
    *("--disable-component-update", "--disable-sync"),
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A started browser; skips the test where there is none."""
    api = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed"
    )
    found = next(
        (
            path
            for name in ("chromium", "chromium-browser", "google-chrome")
            if (path := shutil.which(name))
        ),
        None,
    )
    if found is None:
        pytest.skip("no Chromium is installed")
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Watched:
    """A page, what its console complained of, and which addresses it asked."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def expect(self, condition: str, seconds: float = 20.0) -> None:
        """Wait until an expression of JavaScript holds; the page's own rules forbid to have it wait by
        itself.
        """
        end = time.monotonic() + seconds
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"{condition} never held"
            self.page.wait_for_timeout(50)

    def text(self, selector: str) -> str:
        """What is written there."""
        return str(self.page.inner_text(selector))


@contextmanager
def opened(
    browser: Any,
    url: str,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: str = "light",
) -> Iterator[Watched]:
    """The page at an address, in a window of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme
    )
    watched = Watched(context.new_page())
    watched.page.on(
        "console",
        lambda item: (
            item.type in ("error", "warning") and watched.complaints.append(item.text)
        ),
    )
    watched.page.on("pageerror", lambda error: watched.complaints.append(str(error)))
    watched.page.on("request", lambda request: watched.asked.append(request.url))
    watched.page.goto(url)
    try:
        yield watched
    finally:
        context.close()


@contextmanager
def listening(service: Service, port: int) -> Iterator[str]:
    """The address of a service that listens; it is ended with its engine."""
    config = uvicorn.Config(
        Application(service),
        "127.0.0.1",
        port,
        log_level="warning",
        access_log=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(20.0)


def until(holds: Callable[[], Any], seconds: float = 30.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.02)


@contextmanager
def demonstration(
    folder: Path, break_after: int = 400
) -> Iterator[tuple[str, Visitors, Service]]:
    """Address, visitors that come when the test says so, and service of a demonstration."""
    plan, shop = DemonstrationPlan(break_after=break_after, reward_wait=None), Shop(0)
    service, settings = prepared(
        folder / "d.db", shop, plan, port=free_port(), say=lambda line: None
    )
    with listening(service, settings.port) as url, Client(url) as client:
        yield url, Visitors(client, shop, plan), service
