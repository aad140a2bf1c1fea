"""The page in a real browser: a demonstration played fast, its alarm, its versions, its sad states."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from browsers import (
    Watched,
    chromium,
    demonstration,
    free_port,
    listening,
    opened,
    until,
)
from invariant_bandits_service import commands
from invariant_bandits_service.access import Access
from invariant_bandits_service.cli.demonstration import Visitors
from invariant_bandits_service.engine import Engine
from invariant_bandits_service.operations import Service
from invariant_bandits_service.settings import Configuration
from invariant_bandits_service.store.open_store import open_store
from served_models import serve

pytestmark = pytest.mark.system

MOST_VISITS = 1_500
TOKEN = "a token to look in with"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def shown(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[str, Visitors, Service]]:
    """One demonstration for all tests of this file, which go on where the one before has left it."""
    with demonstration(tmp_path_factory.mktemp("page")) as told:
        yield told


def serious(watched: Watched) -> list[str]:
    """What axe finds serious or critical."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="axe-playwright-python is not installed",
    )
    found = axe.Axe().run(watched.page).response["violations"]
    return [
        f"{item['id']}: {item['nodes'][0]['html']}"
        for item in found
        if item["impact"] in ("serious", "critical")
    ]


def calm(watched: Watched, url: str) -> None:
    """No complaint of the console, and no other origin was asked."""
    assert watched.complaints == []
    assert watched.asked
    assert all(address.startswith((url, "data:")) for address in watched.asked)


def test_decisions_appear_and_everything_can_be_reached_by_keyboard(
    browser: Any, shown: Any
) -> None:
    url, visitors, _ = shown
    with opened(browser, url) as watched:
        watched.expect(
            "document.querySelector('#decisions').innerText.includes('No decision yet')"
        )
        assert "No decision has been settled yet" in watched.text("#reward")
        assert serious(watched) == []
        for _ in range(150):
            visitors.visit()
        watched.expect("document.querySelectorAll('#decisions tbody tr').length === 12")
        watched.expect("document.querySelector('#reward svg.chart .line.own') !== null")
        watched.expect("document.querySelectorAll('#belief .area').length === 4")
        assert "the log’s policy" in watched.text("#reward")
        assert "no alarm" in watched.text("#belief")
        assert watched.text("#alarm") == ""
        assert "season" in watched.text("#drift")
        assert reached_by_keyboard(watched) == controls(watched)
        assert serious(watched) == []
        watched.page.select_option("#model", "banners")
        watched.expect(
            "document.querySelector('#arms').innerText.includes('gift cards')"
        )
        assert "LinUCB" in watched.text("#belief")
        calm(watched, url)


def controls(watched: Watched) -> set[str]:
    """What can be operated, by its words."""
    found = "[...document.querySelectorAll('a, button, select, input')].filter(e => e.checkVisibility() && !e.disabled)"
    return set(watched.page.evaluate(f"{found}.map(e => e.id || e.innerText)"))


def reached_by_keyboard(watched: Watched) -> set[str]:
    """What has the focus in turn."""
    reached = set()
    for _ in range(40):
        watched.page.keyboard.press("Tab")
        reached.add(
            watched.page.evaluate(
                "document.activeElement.id || document.activeElement.innerText"
            )
        )
    there = controls(watched)
    return {item for item in reached if item in there}


def test_the_alarm_shows_when_the_world_breaks(browser: Any, shown: Any) -> None:
    url, visitors, _ = shown
    with opened(browser, url, width=390, height=844, scheme="dark") as watched:
        watched.expect("document.querySelector('#pulse').innerText === 'live'")
        assert watched.text("#alarm") == ""
        while visitors.alarmed_at is None and visitors.visits < MOST_VISITS:
            visitors.visit()
        assert visitors.alarmed_at is not None
        assert visitors.alarmed_at > visitors.plan.break_after
        watched.expect(
            "document.querySelector('#alarm').innerText.includes('stable in the logs has changed')"
        )
        watched.expect("document.title.startsWith('Alarm')")
        watched.expect("document.querySelector('#reward .mark.alarm') !== null")
        assert "price" in watched.text("#drift")
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390
        assert serious(watched) == []
        calm(watched, url)


def test_roll_back_works_and_asks_before(browser: Any, shown: Any) -> None:
    url, _, service = shown
    served = service.engine.state.models["shop"]
    second, first = served.version, served.previous()
    with opened(browser, url) as watched:
        button = watched.page.get_by_role("button", name=f"Roll back to {first}")
        button.click()
        watched.page.get_by_role("button", name="No", exact=True).click()
        assert served.version == second
        button.click()
        assert serious(watched) == []
        watched.page.keyboard.press("Enter")
        watched.expect(
            f"document.querySelector('#outcome').innerText.includes('{first} decides')"
        )
        assert served.version == first
        watched.expect(
            "document.querySelector('#alarm').innerText === ''"
        )  # of the version that was left
        watched.page.get_by_role("button", name=f"Activate version {second}").click()
        watched.page.get_by_role("button", name="Activate", exact=True).click()
        until(lambda: served.version == second)
        calm(watched, url)


def test_decisions_are_found_and_explained_and_the_holdout_shows(
    browser: Any, shown: Any
) -> None:
    url, visitors, service = shown
    rules = Configuration(holdout=0.5)
    service.engine.call(commands.configure("banners", rules), alone=True)
    for _ in range(150):
        visitors.visit()
    with opened(browser, f"{url}/?model=banners") as watched:
        watched.expect("document.querySelectorAll('#decisions tbody tr').length === 12")
        watched.expect(
            "document.querySelector('#holdout .uplift').innerText.includes('±')"
        )
        assert "uniform play" in watched.text("#holdout")
        watched.page.get_by_role("button", name="Older").click()
        watched.expect(
            "document.querySelector('#decisions-words').innerText.includes('does not refresh')"
        )
        watched.page.fill("#decision-search", "phone")
        watched.page.select_option("#decision-status", "learned")
        watched.page.get_by_role("button", name="Search").click()
        watched.expect("document.querySelectorAll('#decisions tbody tr').length === 12")
        watched.expect(
            "!document.querySelector('#decisions').innerText.includes('waiting')"
        )
        watched.page.get_by_role("button", name="Explain").first.click()
        words = watched.text("#decision")
        for word in (
            "device",
            "phone",
            "gift cards",
            "chosen",
            "Settled with",
            "side of the holdout",
        ):
            assert word in words
        assert serious(watched) == []
        watched.page.keyboard.press("Escape")
        watched.page.fill("#decision-search", "no such text")
        watched.page.get_by_role("button", name="Search").click()
        watched.expect(
            "document.querySelector('#decisions').innerText.includes('No decision matches')"
        )
        calm(watched, url)


def test_arms_are_added_and_retired(browser: Any, shown: Any) -> None:
    url, _, service = shown
    with opened(browser, f"{url}/?model=banners", width=390, height=844) as watched:
        watched.page.fill("#arm-label", "<b>summer</b>")
        watched.page.get_by_role("button", name="Add", exact=True).click()
        watched.page.locator("#sure-yes").click()
        watched.expect(
            "document.querySelector('#arm-outcome').innerText.includes('<b>summer</b> can be')"
        )
        assert service.engine.state.models["banners"].learner.arms["<b>summer</b>"]
        watched.page.get_by_role("button", name="Retire", exact=True).click()
        assert serious(watched) == []
        watched.page.locator("#sure-yes").click()
        watched.expect("document.querySelector('#arms').innerText.includes('retired')")
        assert not service.engine.state.models["banners"].learner.arms["<b>summer</b>"]
        watched.page.get_by_role("button", name="Retire", exact=True).click()
        watched.page.locator("#sure-yes").click()
        watched.expect(
            "document.querySelector('#arm-outcome').innerText.includes('Nothing was changed')"
        )
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_token_is_asked_for_and_a_service_that_went_away_is_told_of(
    browser: Any, tmp_path: Path
) -> None:
    engine = Engine(open_store(tmp_path / "d.db"))
    engine.start()
    serve(engine)
    access = Access({hashlib.sha256(TOKEN.encode()).hexdigest(): "read"})
    with listening(Service(engine, access), free_port()) as url:
        window = opened(browser, url, scheme="dark")
        watched = window.__enter__()
        watched.expect(
            "document.querySelector('#notice').innerText.includes('needs a token')"
        )
        assert not watched.page.is_visible("#figures")
        assert serious(watched) == []
        watched.page.get_by_role("button", name="Enter a token").click()
        watched.page.keyboard.type(TOKEN)
        watched.page.keyboard.press("Enter")
        watched.expect(
            "document.querySelector('#versions').innerText.includes('This token may read')"
        )
        assert watched.page.evaluate(
            "[Object.values(localStorage).length, document.cookie]"
        ) == [0, ""]
    watched.expect(
        "document.querySelector('#notice').innerText.includes('does not answer')"
    )
    assert watched.page.is_visible("#figures")  # what was last seen
    assert serious(watched) == []
    assert all(address.startswith((url, "data:")) for address in watched.asked)
    window.__exit__(None, None, None)
