"""A performance report as a browser shows it: in both schemes, by keyboard, of any text."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

import jflow as tf
from jflow.plan.trace import Span, Trace
from jflow.view.measurements import Measurements, StepRun
from jflow.view.report import report_page
from tests.browser.test_cards import opened


@pytest.fixture(scope="module")
def report() -> str:
    """Two threads that train at the same time, each on its worker."""
    with tf.LocalCluster(ps=1, workers=2) as cluster, tf.connect(cluster.target("worker", 0)):
        with tf.device("/job:ps"):
            hidden = tf.Variable(np.full((256, 256), 0.01, np.float32), name="hidden")
            output = tf.Variable(np.zeros(256, np.float32), name="output")

        def loss(hidden: Any, output: Any, x: Any) -> Any:
            return jnp.mean((jnp.tanh(x @ hidden) @ output - 1) ** 2)

        def trainer(worker: int) -> Any:
            @tf.function
            def train(x: Any) -> Any:
                with tf.device(f"/job:worker/task:{worker}"):
                    weights = hidden.value(), output.value()
                    value, slopes = jax.value_and_grad(loss, (0, 1))(*weights, x)
                hidden.assign_sub(0.1 * slopes[0])
                output.assign_sub(0.1 * slopes[1])
                return value

            return train

        x = np.ones((64, 256), np.float32)
        trainers = [trainer(0), trainer(1)]

        def work(train: Any) -> None:
            with tf.connect(cluster.target("worker", 0)):
                for _ in range(15):
                    train(x)

        for train in trainers:
            train(x)
        with tf.performance_report() as found:
            threads = [threading.Thread(target=work, args=(train,)) for train in trainers]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    return found.html()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_report_is_accessible(
    browser: Browser,
    tmp_path: Path,
    pictures: Path,
    report: str,
    scheme: Literal["light", "dark"],
) -> None:
    page = opened(browser, tmp_path, report, scheme)
    results = Axe().run(page)
    assert not results.violations_count, results.generate_report()
    clip = {"x": 0.0, "y": 0.0, "width": 1280.0, "height": 1750.0}
    page.screenshot(path=pictures / f"report-{scheme}.png", full_page=True, clip=clip)
    page.close()


def test_a_link_leads_to_its_section(browser: Browser, tmp_path: Path, report: str) -> None:
    page = opened(browser, tmp_path, report)
    links = page.locator("nav a")
    assert links.count() == 10
    for link in links.all():
        link.press("Enter")
        section = page.locator(f"section{link.get_attribute('href')}")
        assert section.evaluate("each => each.getBoundingClientRect().top") < 900
    page.close()


def test_hostile_names_do_nothing(browser: Browser, tmp_path: Path) -> None:
    name = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e" + "x" * 10_000
    trace = Trace("measured", (Span(name, "program", name, 0.0, 1.0, {"made at": name}),))
    measured = Measurements(1.0, [StepRun(name, 0.0, 1.0, trace)], 1, {name: name})
    page = opened(browser, tmp_path, report_page(measured, name))
    assert page.locator("script, img").count() == 0
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= 1280, "a long name does not widen the page"
    page.close()
