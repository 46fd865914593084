"""The live page in a browser: idle, under load, with a stopped task, with hostile names, large."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

import jflow as tf
from jflow.cli.dashboard.command import served
from jflow.testing import wait_until

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\u202e" + "x" * 10_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[tf.LocalCluster]:
    with tf.LocalCluster(ps=1, workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def targets(cluster: tf.LocalCluster) -> list[str]:
    return [cluster.target(task.job, task.index) for task in cluster.tasks]


@pytest.fixture
def url(targets: list[str]) -> Iterator[str]:
    with served(targets, 2.0) as url:
        yield url


@contextmanager
def opened(
    browser: Browser, url: str, scheme: Literal["light", "dark"] = "light", status: str = "are up"
) -> Iterator[Page]:
    """The page once it has seen the cluster; no script may fail, or call another server."""
    page = browser.new_page(color_scheme=scheme, viewport={"width": 1280, "height": 1400})
    address = url.partition("#")[0]
    page.on("request", lambda one: _check_request(one.url, address))
    page.on("dialog", lambda dialog: pytest.fail(f"a script spoke: {dialog.message}"))
    page.on("pageerror", lambda error: pytest.fail(f"a script failed: {error}"))
    page.goto(url)
    expect(page.locator("#status")).to_contain_text(status, timeout=60_000)
    yield page
    page.close()


def _check_request(url: str, address: str) -> None:
    assert url.startswith((address, "data:")), url


def check(page: Page) -> None:
    results = Axe().run(page)
    assert not results.violations_count, results.generate_report()


@contextmanager
def load(target: str) -> Iterator[None]:
    """Trains on a worker, fills a queue, and leaves a step that waits for another queue."""
    end = threading.Event()
    with ExitStack() as stack:
        stack.enter_context(tf.connect(target))
        with tf.device("/job:ps"), tf.container("digits"):
            weight = tf.Variable(np.full((256, 256), 0.01, np.float32), name="dense/kernel")
            bias = tf.Variable(np.zeros(256, np.float32), name="dense/bias")
            examples = tf.FIFOQueue(64, [tf.float32], [()], shared_name="examples")
            labels = tf.FIFOQueue(64, [tf.float32], [()], shared_name="labels")
        if not int(examples.size()):
            examples.put_many(np.ones(40, np.float32))

        @tf.function
        def train(x: Any) -> Any:
            with tf.device("/job:worker/task:1"):
                value = jnp.tanh(x @ weight.value()) + bias.value()
                slope = 1e-6 * jnp.sum(value)
            weight.assign_sub(slope * jnp.ones((256, 256)))
            return slope

        x = np.ones((256, 256), np.float32)
        train(x)

        def run() -> None:
            with tf.connect(target):
                while not end.is_set():
                    with suppress(tf.errors.UnavailableError):  # while its worker is stopped
                        train(x)

        threads = [threading.Thread(target=run) for _ in range(2)]
        waiting = threading.Thread(target=labels.get)
        for thread in (*threads, waiting):
            thread.start()
        try:
            yield
        finally:
            end.set()
            labels.put(1.0)
            for thread in (*threads, waiting):
                thread.join()


def test_the_page_of_an_idle_cluster(browser: Browser, url: str, pictures: Path) -> None:
    with opened(browser, url) as page:
        assert page.locator("#tasks tbody tr").count() == 3
        check(page)
        page.screenshot(path=pictures / "dashboard-idle.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_cluster_under_load(
    browser: Browser,
    url: str,
    targets: list[str],
    pictures: Path,
    scheme: Literal["light", "dark"],
) -> None:
    with load(targets[1]), opened(browser, url, scheme) as page:
        expect(page.locator("#queues")).to_contain_text("40 of 64", timeout=30_000)
        expect(page.locator("#steps")).to_contain_text("to dequeue an element", timeout=30_000)
        page.get_by_role("button", name="Trace the next step").click()
        expect(page.locator("#timeline")).to_be_visible(timeout=30_000)
        expect(page.locator("#plan")).to_be_visible()
        rates = page.locator("#tasks tbody tr td:nth-child(5)")
        wait_until(lambda: float(rates.all_text_contents()[-1]) > 0, "the rate of worker 1")
        check(page)
        page.screenshot(path=pictures / f"dashboard-{scheme}.png", full_page=True)


def test_a_stopped_task_is_found_within_a_minute(
    browser: Browser, url: str, targets: list[str], pictures: Path
) -> None:
    with load(targets[1]), opened(browser, url) as page:
        row = page.locator("#tasks tbody tr", has_text="/job:worker/task:1")
        expect(row).to_contain_text("up")
        pid = _pid("/job:worker/task:1", targets)
        os.kill(pid, signal.SIGSTOP)
        try:
            expect(page.locator("#status")).to_contain_text("1 of 3 tasks do not", timeout=60_000)
            expect(row).to_contain_text("silent")
            expect(page.locator("#events")).to_contain_text("/job:worker/task:1 is silent")
            expect(page.locator("#steps")).to_contain_text("for a value from /job:worker/task:1")
            check(page)
            page.screenshot(path=pictures / "dashboard-stopped.png")
        finally:
            os.kill(pid, signal.SIGCONT)
        expect(page.locator("#status")).to_contain_text("3 tasks are up", timeout=60_000)


@contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Stops a process for nine tenths of the time."""
    end = threading.Event()

    def slow() -> None:
        while not end.wait(0.01):
            os.kill(pid, signal.SIGSTOP)
            end.wait(0.09)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=slow)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


@pytest.mark.parametrize("slow", [0, 1])
def test_the_slow_one_of_two_workers_is_found_within_a_minute(
    browser: Browser, url: str, targets: list[str], slow: int
) -> None:
    end = threading.Event()
    with tf.connect(targets[0]), tf.device("/job:ps"):
        weight = tf.Variable(np.full((256, 256), 0.01, np.float32), name="shared")

    @tf.function
    def train(x: Any) -> Any:
        slopes = []
        for index in range(2):
            with tf.device(f"/job:worker/task:{index}"):
                slopes.append(1e-6 * jnp.sum(jnp.tanh(x @ weight.value())))
        weight.assign_sub((slopes[0] + slopes[1]) * jnp.ones((256, 256)))
        return slopes[0]

    def run() -> None:
        with tf.connect(targets[0]):
            while not end.is_set():
                train(np.ones((256, 256), np.float32))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        with slowed(_pid(f"/job:worker/task:{slow}", targets)), opened(browser, url) as page:
            page.locator("#tasks thead button", has_text="waited for").click()
            top = page.locator("#tasks tbody tr").first
            expect(top).to_contain_text(f"/job:worker/task:{slow}", timeout=60_000)
            page.wait_for_timeout(5000)
            expect(top).to_contain_text(f"/job:worker/task:{slow}", timeout=60_000)
    finally:
        end.set()
        thread.join()


def _pid(task: str, targets: list[str]) -> int:
    from jflow.cli.watcher import Watcher  # noqa: PLC0415

    with Watcher(targets, 10.0) as watcher:
        (found,) = [one for one in watcher.inspect(()) if str(one.report.task) == task]
    assert found.status is not None
    return found.status.pid


def test_hostile_names_are_names(
    browser: Browser, url: str, targets: list[str], pictures: Path
) -> None:
    with tf.connect(targets[0]), tf.container("hostile"):
        queue = tf.FIFOQueue(4, [tf.float32], [()], shared_name=HOSTILE)
        queue.put(1.0)
        with opened(browser, url) as page:
            expect(page.locator("#queues")).to_contain_text("<script>", timeout=30_000)
            expect(page.locator("#queues")).to_contain_text("\\u202e")
            expect(page.locator("#queues")).not_to_contain_text("\u202e")
            assert page.locator("main img:visible, main script").count() == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= 1280
            check(page)
            page.screenshot(path=pictures / "dashboard-hostile.png")


def test_the_page_is_used_by_keyboard(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        page.get_by_label("Show rows with").focus()
        page.keyboard.type("worker/task:1")
        expect(page.locator("#tasks tbody tr")).to_have_count(1)
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.press("Delete")
        expect(page.locator("#tasks tbody tr")).to_have_count(3)
        memory = page.locator("#tasks thead button", has_text="memory")
        memory.focus()
        page.keyboard.press("Enter")
        heading = page.locator("#tasks thead th[aria-sort]")
        assert heading.get_attribute("aria-sort") == "descending"
        page.keyboard.press("Space")
        assert heading.get_attribute("aria-sort") == "ascending"
        page.wait_for_timeout(2500)
        assert memory.evaluate("each => each === document.activeElement"), "it keeps the focus"
        page.get_by_role("button", name="Pause").press("Enter")
        assert page.locator("#pause").get_attribute("aria-pressed") == "true"


def test_without_the_token_the_page_says_what_is_missing(browser: Browser, url: str) -> None:
    with opened(browser, url.partition("#")[0], status="open the whole URL") as page:
        assert page.locator("#tasks tbody tr").count() == 0


def test_a_page_of_another_site_reads_nothing(browser: Browser, url: str, tmp_path: Path) -> None:
    address, _, token = url.partition("#token=")
    file = tmp_path / "evil.html"
    file.write_text("<!doctype html><title>evil</title>")
    page = browser.new_page()
    page.goto(file.as_uri())
    read = """async ([url, token]) => {
      try { return await (await fetch(url, {headers: {Authorization: `Bearer ${token}`}})).text(); }
      catch (error) { return 'refused'; }
    }"""
    assert page.evaluate(read, [f"{address}api/state", token]) == "refused"
    framed = """url => {
      const frame = document.createElement('iframe');
      frame.src = url;
      document.body.append(frame);
    }"""
    page.evaluate(framed, address)
    page.wait_for_timeout(500)
    assert not [frame for frame in page.frames[1:] if frame.url.startswith(address)]
    page.close()


def test_the_token_leaves_the_browser_in_a_header_only(browser: Browser, url: str) -> None:
    token = url.partition("#token=")[2]
    page = browser.new_page()
    seen: list[tuple[str, dict[str, str]]] = []
    page.on("request", lambda one: seen.append((one.url.partition("#")[0], one.all_headers())))
    page.goto(url)
    expect(page.locator("#status")).to_contain_text("are up", timeout=60_000)
    page.close()
    assert len(seen) > 3
    for address, headers in seen:
        assert token not in address
        assert token not in headers.get("referer", "")


@pytest.fixture
def large() -> Iterator[str]:
    """The page of a cluster of 100 tasks with 10,000 variables, 200 queues and 500 steps."""
    import secrets  # noqa: PLC0415
    import socket  # noqa: PLC0415

    import uvicorn  # noqa: PLC0415

    from jflow.cli.dashboard.app import application  # noqa: PLC0415

    class Looks:
        n_calls = 0

        def state(self) -> dict[str, Any]:
            self.n_calls += 1
            return large_state(self.n_calls)

        def variables(self, task: str, first: int) -> dict[str, Any]:
            names = [HOSTILE, *(f"layer{i}/kernel" for i in range(1, 10_000))]
            named = [
                {
                    "container": "",
                    "name": name,
                    "device": f"{task}/device:CPU:0",
                    "dtype": "float32",
                    "shape": [256, 256],
                    "n_bytes": 1 << 18,
                }
                for name in names[first : first + 100]
            ]
            return {"total": 10_000, "first": first, "variables": named, "error": ""}

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        token, port = secrets.token_urlsafe(8), listener.getsockname()[1]
        looks: Any = Looks()
        app = application(looks, token, port)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}/#token={token}"
        finally:
            server.should_exit = True
            thread.join()


def large_state(look: int) -> dict[str, Any]:
    tasks = [f"/job:worker/task:{i}" for i in range(100)]
    return {
        "at": 1.0 + look,
        "error": "",
        "tasks": [
            {
                "name": name,
                "state": "up",
                "reason": "",
                "address": f"10.0.0.{i}:2222",
                "cpu_percent": float((i * look) % 97),
                "memory_bytes": i << 20,
                "steps_per_s": float(i),
                "n_running": 5,
                "n_sessions": 1,
                "waited_for": 0,
                "uptime_s": 60.0 + look,
                "version": "1",
            }
            for i, name in enumerate(tasks)
        ],
        "containers": [
            {"task": name, "name": "", "n_variables": 100, "n_bytes": 1 << 25, "n_resources": 2}
            for name in tasks
        ],
        "queues": [
            {
                "task": name,
                "container": "",
                "name": f"queue{j}",
                "device": f"{name}/cpu:0",
                "kind": "FIFOQueue",
                "size": (look + j) % 64,
                "n_bytes": 256,
                "capacity": 64,
                "capacity_bytes": None,
                "n_enqueues": 0,
                "n_dequeues": 1,
                "is_closed": False,
                "owner": "",
            }
            for name in tasks
            for j in range(2)
        ],
        "sessions": [],
        "coordinators": [],
        "steps": [
            {
                "step": f"{look:x}{i:x}",
                "age_s": float(i),
                "master": tasks[0],
                "tasks": [tasks[i % 100]],
                "waits": [{"task": tasks[i % 100], "what": "waits"}],
            }
            for i in range(500)
        ],
        "throughput": [float(i) for i in range(120)],
        "events": [],
    }


def test_a_large_cluster_is_readable_and_quick(
    browser: Browser, large: str, pictures: Path
) -> None:
    with opened(browser, large, status="100 tasks are up") as page:
        assert page.locator("#tasks tbody tr").count() == 100
        assert page.locator("#steps tbody tr").count() == 500
        page.get_by_role("button", name="variables of /job:worker/task:99").click()
        expect(page.locator("#range")).to_have_text("1 to 100 of 10,000")
        expect(page.locator("#variables")).to_contain_text("<script>")
        for _ in range(3):
            page.get_by_role("button", name="Next", exact=True).click()
        expect(page.locator("#range")).to_have_text("301 to 400 of 10,000")
        took = page.evaluate(
            "async () => { const at = Date.now(); await look(); return Date.now() - at; }"
        )
        assert took < 2000
        check(page)
        page.screenshot(path=pictures / "dashboard-large.png")
