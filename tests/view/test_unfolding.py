"""Pictures whose folds open, as documents; tests/browser clicks in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from jflow.inspect import diagram, html_picture, picture, save_picture
from jflow.view.unfold import MAX_INSIDE
from tests.view.test_picture import Picture, nameless, training_step


def svgs(html: str) -> list[Picture]:
    """The pictures in a page, the outermost first."""
    return [Picture(text) for text in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]


def folds(html: str) -> list[str]:
    """Classes of the checkboxes of the outermost picture."""
    outermost = re.findall(r"<svg.*?</svg>", html, re.DOTALL)[0]
    return re.findall(r'class="(jflow-fold-\d+)"', outermost)


def test_each_fold_opens_and_has_an_inside() -> None:
    html = html_picture(training_step(), 8)
    found = diagram(training_step(), 8)
    numbers = [i for i, box in enumerate(found.boxes) if box.members]
    assert folds(html) == [f"jflow-fold-{i}" for i in numbers]
    for i in numbers:
        assert f'class="jflow-inside jflow-inside-{i}"' in html
        assert f".jflow-unfold:has(> svg .jflow-fold-{i}:checked) > .jflow-inside-{i}" in html


def test_inside_shows_each_operation_and_what_is_around() -> None:
    html = html_picture(training_step(), 8)
    insides = [found for found in svgs(html)[1:] if "gradients/dot_general" in found.names("op")]
    assert any(name.startswith("layer1 (2 var") for found in insides for name in found.names("op"))
    assert all(found.groups("arrow") for found in insides)


def test_no_inside_is_like_the_picture_around_it() -> None:
    for placement, limit in ((training_step(5), 8), (nameless(300), 8), (nameless(40), 1)):
        drawn = [tuple(found.names("op")) for found in svgs(html_picture(placement, limit))]
        assert len(drawn) == len(set(drawn))


def test_colours_of_devices_are_those_of_the_outer_picture() -> None:
    outer, *inner = svgs(html_picture(training_step(), 8))
    colours = dict(
        zip(outer.texts("device"), outer.root.findall(".//*[@class='device']"), strict=True)
    )
    for found in inner:
        for name, text in zip(
            found.texts("device"), found.root.findall(".//*[@class='device']"), strict=True
        ):
            assert text.get("style") == colours[name].get("style")


def test_picture_without_folds_is_the_image() -> None:
    html = html_picture(training_step(), 1000)
    assert "checkbox" not in html
    assert svgs(html)[0].names("op") == Picture(picture(training_step(), None)).names("op")


def test_a_large_graph_does_not_open_without_bound() -> None:
    html = html_picture(nameless(3000))
    assert sum(len(found.groups("op")) for found in svgs(html)) <= 3 * MAX_INSIDE
    assert len(html) < 2_000_000


def test_page_is_written_for_its_ending(tmp_path: Path) -> None:
    save_picture(training_step(), tmp_path / "step.html", 8)
    save_picture(training_step(), tmp_path / "step.svg", 8)
    page = (tmp_path / "step.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert page.count("<svg") > 1
    assert (tmp_path / "step.svg").read_text() == picture(training_step(), 8)
    save_picture(training_step(), tmp_path / "whole.html", None)
    assert (tmp_path / "whole.html").read_text().count("<svg") == 1


def test_limit_has_to_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        html_picture(training_step(), 0)
