"""Cards as a browser shows them: readable in both schemes, by keyboard, and of any text."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser import gallery

WIDTH = 1280


@pytest.fixture(scope="module")
def cards() -> dict[str, str]:
    return gallery.every()


def opened(
    browser: Browser, folder: Path, html: str, scheme: Literal["light", "dark"] = "light"
) -> Page:
    """A page of a file, which fails the test if it calls anything or a script speaks."""
    file = folder / "page.html"
    file.write_text(html)
    page = browser.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": 900})
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("dialog", lambda dialog: pytest.fail(f"a script spoke: {dialog.message}"))
    page.on("pageerror", lambda error: pytest.fail(f"a script failed: {error}"))
    page.goto(file.as_uri())
    assert requests == [file.as_uri()]
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_card_is_accessible(
    browser: Browser,
    tmp_path: Path,
    pictures: Path,
    cards: dict[str, str],
    scheme: Literal["light", "dark"],
) -> None:
    page = opened(browser, tmp_path, gallery.page(cards, columns=3), scheme)
    for summary in page.locator("summary").all():
        if summary.evaluate("each => !each.parentElement.open"):
            summary.click()
    results = Axe().run(page)
    assert not results.violations_count, results.generate_report()
    page.reload()
    page.screenshot(path=pictures / f"cards-{scheme}.png", full_page=True)
    page.close()


def test_the_two_schemes_differ(browser: Browser, tmp_path: Path, cards: dict[str, str]) -> None:
    colours = set()
    for scheme in ("light", "dark"):
        page = opened(browser, tmp_path, gallery.page(cards), scheme)
        card = page.locator(".jflow-card").first
        colours.add(card.evaluate("each => getComputedStyle(each).backgroundColor"))
        page.close()
    assert len(colours) == 2


@pytest.mark.parametrize("theme", ["true", "false"])
def test_the_theme_of_a_notebook_counts_more_than_that_of_the_system(
    browser: Browser, tmp_path: Path, cards: dict[str, str], theme: str
) -> None:
    html = gallery.page(cards).replace("<body>", f'<body data-jp-theme-light="{theme}">')
    opposite: Literal["light", "dark"] = "dark" if theme == "true" else "light"
    page = opened(browser, tmp_path, html, opposite)
    card = page.locator(".jflow-card").first
    background = card.evaluate("each => getComputedStyle(each).backgroundColor")
    assert (background == "rgb(255, 255, 255)") == (theme == "true")
    page.close()


def test_hostile_names_stay_in_their_place(
    browser: Browser, tmp_path: Path, pictures: Path
) -> None:
    html = gallery.hostile()
    page = opened(browser, tmp_path, gallery.page(html))
    for card in page.locator(".jflow-card").all():
        assert card.is_visible()
        box = card.bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= WIDTH
        assert box["height"] < 600
    assert page.locator("script, img").count() == 0
    assert page.locator(".jflow-card").count() == 2 * len(gallery.HOSTILE_NAMES)
    page.screenshot(path=pictures / "cards-hostile.png", full_page=True)
    page.close()


def test_tables_unfold_by_keyboard(browser: Browser, tmp_path: Path, cards: dict[str, str]) -> None:
    page = opened(browser, tmp_path, gallery.page({"a graph": cards["a graph"]}))
    details = page.locator("details").first
    assert not details.evaluate("each => each.open")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert details.evaluate("each => each.open")
    page.close()
