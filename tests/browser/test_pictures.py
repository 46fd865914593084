"""Pictures of five real models as a browser shows them; their folds open by mouse and keyboard."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from jflow.view.picture import html_picture, picture
from tests.browser.models import placed_models

PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>model</title></head>'
    "<body><main><h1>model</h1>{}</main></body></html>"
)


@pytest.fixture(scope="module")
def models() -> dict[str, tuple[str, str]]:
    """The image and the HTML of each model."""
    return {name: (picture(placed), html_picture(placed)) for name, placed in placed_models()}


MODELS = ["convolutional", "recommender", "towers", "transformer", "pipeline"]


@pytest.mark.parametrize("model", MODELS)
def test_picture_of_a_model(
    browser: Browser,
    tmp_path: Path,
    pictures: Path,
    models: dict[str, tuple[str, str]],
    model: str,
) -> None:
    image, _ = models[model]
    root = ET.fromstring(image)
    width, height = (int(float(root.get(side, "0"))) for side in ("width", "height"))
    file = tmp_path / "model.svg"
    file.write_text(image)
    page = browser.new_page(viewport={"width": width, "height": height})
    page.goto(file.as_uri())
    texts = page.locator(".op .name").all_text_contents()
    assert 10 <= len(texts) <= 40
    assert not any("stop_gradient" in text for text in texts)
    page.screenshot(path=pictures / f"model-{model}.png")
    page.close()


@pytest.mark.parametrize("model", MODELS)
def test_folds_open_by_mouse_and_keyboard(
    browser: Browser, tmp_path: Path, models: dict[str, tuple[str, str]], model: str
) -> None:
    file = tmp_path / "model.html"
    file.write_text(PAGE.format(models[model][1]))
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("request", lambda request: request.url == file.as_uri() or pytest.fail(request.url))
    page.goto(file.as_uri())
    shown = page.locator(".jflow-inside:visible")
    assert shown.count() == 0
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    assert shown.count() == 1
    page.keyboard.press("Space")
    assert shown.count() == 0
    last = page.locator(".jflow-unfold > svg input:visible").last
    last.locator("..").click(position={"x": 10, "y": 10})
    assert shown.count() == 1
    results = Axe().run(page)
    assert not results.violations_count, results.generate_report()
    page.close()
