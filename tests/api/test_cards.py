"""What notebooks show of jflow's objects: cards, complete, escaped and never waited for."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jflow as tf
from jflow.base.cards import MAX_ROWS, MAX_TEXT, Card, CardTable, ask, shown
from jflow.data import Dataset
from jflow.testing import PATIENCE_S
from tests.clusters import in_process

VOID = {"br", "path", "rect", "line", "circle", "ellipse", "polygon", "use", "stop", "meta", "link"}


class Page(HTMLParser):
    """The texts and elements of HTML; fails if elements are not closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.texts)

    def fact(self, label: str) -> str:
        """The text of a fact."""
        return self.texts[self.texts.index(label) + 1]


def card(value: Any) -> Page:
    return Page(value._repr_html_())


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with in_process() as backend:
        yield backend.targets[0]


@pytest.fixture
def x() -> tf.Tensor:
    return tf.placeholder(tf.float32, (None, 3), name="x")


# What is shown -----------------------------------------------------------------------------------


def test_a_graph_counts_its_operations_by_type_and_device(x: tf.Tensor) -> None:
    with tf.device("/job:ps/task:0"):
        tf.Variable(np.ones((3, 2), np.float32), name="w")
    tf.nn.relu(x * 2)
    page = card(tf.get_default_graph())
    assert page.fact("operations") == str(len(tf.get_default_graph().get_operations()))
    assert page.fact("variables") == "1"
    assert "placeholder" in page.text
    assert "/job:ps/task:0" in page.text


def test_tensors_and_operations_tell_their_line_and_their_shapes(x: tf.Tensor) -> None:
    product = x * 2
    page = card(product)
    assert page.fact("shape") == "(None, 3)"
    assert "test_cards.py" in page.fact("made at")
    of_op = card(product.op)
    assert of_op.fact("type") == product.op.type
    assert "x:0" in of_op.text
    assert product.name in of_op.text


def test_a_variable_shows_what_this_process_knows_of_it() -> None:
    with tf.container("models"):
        in_graph = tf.Variable(np.ones((3, 2), np.float32), name="w", trainable=False)
    page = card(in_graph)
    assert page.fact("size") == "24 B"
    assert page.fact("container") == "models"
    assert page.fact("trained by optimizers") == "no"
    assert "In graph code" in page.text
    with tf.connect():
        eager = card(tf.Variable([1.0, 2.0], name="eager"))
    assert eager.fact("value") == "[1. 2.]"


def test_variables_of_several_parts_list_them() -> None:
    partitioned = tf.get_variable("rows", (4, 2), partitioner=tf.fixed_size_partitioner(2, axis=0))
    page = card(partitioned)
    assert "rows/part_1" in page.text.replace(":0", "")
    assert "(2)" in page.text
    assert page.fact("shape") == "(4, 2)"


def test_a_queue_tells_its_size_only_where_it_is_eager(cluster: str) -> None:
    in_graph = card(tf.FIFOQueue(10, [tf.float32], name="jobs"))
    assert in_graph.fact("capacity") == "10"
    assert "size" not in in_graph.texts
    with tf.connect(cluster):
        queue = tf.FIFOQueue(3, [tf.float32], shapes=[()], shared_name="card_jobs")
        queue.size()  # the first request compiles it
        queue.put(1.0)
        page = card(queue)
        assert page.fact("size") == "1"
        assert page.fact("shared") == "by its name"
        queue.close()
        assert card(queue).fact("closed") == "yes"


def test_a_session_lists_the_steps_that_it_has_run(x: tf.Tensor) -> None:
    product = x * 2
    with tf.Session() as session:
        for _ in range(3):
            session.run(product, {x: np.ones((1, 3), np.float32)})
        page = card(session)
        assert page.fact("server") == "this process"
        assert page.texts[page.texts.index(product.name) + 1] == x.name
    assert card(session).fact("state") == "closed"


def test_a_connection_lists_the_variables_that_were_made_there(cluster: str) -> None:
    with tf.connect(cluster) as connection:
        tf.Variable(np.ones(2, np.float32), name="of_card")
        page = card(connection)
    assert page.fact("server") == cluster
    assert page.fact("state") == "open"
    assert "of_card" in page.text
    assert card(connection).fact("state") == "closed"


def test_a_function_tells_its_signature_and_what_was_traced() -> None:
    @tf.function
    def scaled(value: Any, factor: float = 2.0) -> Any:
        return value * factor

    assert card(scaled).fact("runs on") == "no connection yet"
    assert repr(scaled) == "<jflow.function scaled>"
    scaled(np.float32(1))
    assert repr(scaled) == "<jflow.function scaled, 1 signature traced>"
    scaled(np.ones(3, np.float32))
    page = card(scaled)
    assert page.fact("signature").startswith("scaled(value")
    assert "test_cards.py" in page.fact("defined at")
    assert "value: float32[3]" in page.texts
    assert repr(scaled) == "<jflow.function scaled, 2 signatures traced>"


def test_a_cluster_tells_which_tasks_are_up() -> None:
    with tf.LocalCluster(ps=1, workers=1) as cluster:
        assert "2 of 2 tasks up" in repr(cluster)
        cluster.kill("worker", 0)
        assert "1 of 2 tasks up" in repr(cluster)
        page = card(cluster)
        assert "/job:worker/task:0" in page.texts
        assert page.texts.count("up") == 1
        assert "ended with -9" in page.texts


def test_a_coordinator_and_its_results_tell_how_far_they_are() -> None:
    @tf.function
    def successor(value: Any) -> Any:
        return value + 1

    with tf.LocalCluster(ps=1, workers=1) as cluster:
        strategy = tf.distribute.ParameterServerStrategy(cluster.cluster_spec)
        with tf.ClusterCoordinator(strategy) as coordinator:
            result = coordinator.schedule(successor, (np.float32(1),))
            coordinator.join()
            assert card(coordinator).fact("closures") == "0 wait, 0 run"
            assert card(coordinator).fact("ended").startswith("1 well")
            page = card(result)
    assert page.fact("status") == "READY"
    assert page.fact("result") == "float32[]"


def test_a_dataset_lists_its_transformations_and_reads_nothing() -> None:
    def elements() -> Iterator[int]:
        raise AssertionError("the card has read an element")

    page = card(Dataset.from_generator(elements).batch(2))
    assert any(text.startswith("batch(2") for text in page.texts)


def test_placements_and_explanations_draw_themselves(x: tf.Tensor) -> None:
    product = tf.nn.relu(x * 2)
    with tf.Session() as session:
        placement = session.placement(product, [x])
        explanation = session.explain(product, [x])
    for value in (placement, explanation):
        page = card(value)
        assert any(tag == "svg" for tag, _ in page.elements)
        assert product.op.name in page.text
    assert dict(placement) == explanation.placement
    assert repr(placement) == f"<jflow placement of {len(placement)} operations on 1 devices>"
    assert card(explanation).fact("placed by") == explanation.strategy


def test_a_trace_tells_where_the_time_went(x: tf.Tensor) -> None:
    product = x * 2
    with tf.Session() as session, tf.trace_steps() as traces:
        session.run(product, {x: np.ones((1, 3), np.float32)})
    (trace,) = traces
    page = card(trace)
    assert trace.devices[0] in page.texts
    assert trace.spans[0].name in page.texts
    assert repr(trace).startswith("<jflow.Trace 'measured' of 1 spans on 1 devices")


def test_a_report_of_a_save_says_what_was_written_in_a_line() -> None:
    report = tf.checkpoint.SaveReport(2048, 0.001, 0.25, "/models/a-7", ("/job:ps/task:0",))
    assert repr(report) == (
        "<jflow.checkpoint.SaveReport of '/models/a-7': 2 KiB in 250 ms, by /job:ps/task:0>"
    )
    assert "by no task" in repr(tf.checkpoint.SaveReport())


def test_checkpoints_list_what_is_in_them(tmp_path: Path) -> None:
    tf.Variable(np.ones((3, 2), np.float32), name="w")
    saver = tf.train.Saver(max_to_keep=2)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        paths = [saver.save(session, str(tmp_path / "m"), step) for step in range(3)]
    reader = tf.train.load_checkpoint(paths[-1])
    assert re.fullmatch(
        rf"<jflow.train.CheckpointReader of '{re.escape(paths[-1])}': step \d+, \d+ tensors?, .*B>",
        repr(reader),
    )
    page = card(reader)
    assert page.fact("path") == paths[-1]
    assert page.texts[page.texts.index("w") + 1] == "(3, 2)"
    listing = card(tf.train.get_checkpoint_state(tmp_path))
    assert [text for text in listing.texts if text in paths[1:]][1:] == [paths[2], paths[1]]
    assert paths[0] not in listing.texts


def test_a_container_block_says_its_name_and_still_is_one() -> None:
    block = tf.container("shelf")
    assert repr(block) == "<jflow.container 'shelf'>"
    assert "shelf" in card(block).text
    for _ in range(2):
        with block:
            variable = tf.Variable(1.0, name="v")
        assert variable._ref.container == "shelf"

    @tf.container("decorated")
    def make() -> tf.Variable:
        return tf.Variable(1.0, name="u")

    assert make()._ref.container == "decorated"
    with block, tf.container("inner"), block:
        assert tf.Variable(1.0)._ref.container == "shelf"
    assert tf.Variable(1.0)._ref.container == ""


def test_a_container_block_that_threads_share_is_of_each_of_them() -> None:
    block, graph = tf.container("shared"), tf.get_default_graph()
    is_inside, end = threading.Event(), threading.Event()

    def enter() -> None:
        with graph.as_default(), block:
            is_inside.set()
            assert end.wait(PATIENCE_S)

    thread = threading.Thread(target=enter)
    with block:
        thread.start()
        assert is_inside.wait(PATIENCE_S)
    assert tf.Variable(1.0)._ref.container == ""
    end.set()
    thread.join(PATIENCE_S)
    assert tf.Variable(1.0)._ref.container == ""


# What is hostile ---------------------------------------------------------------------------------

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "&lt;b&gt;",
    "\u202egnp.exe",
    "a\x00\x1b[31mb",
    "é" * 10_000,
]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_text_of_users_is_shown_as_text_and_is_cut(name: str) -> None:
    table = CardTable(name, (name,), [(name,)])
    page = Page(Card(name, name, ((name, name),), (table,), note=name).html())
    allowed = {"style", "div", "span", "b", "bdi", "table", "thead", "tbody", "tr", "th", "td"}
    assert {tag for tag, _ in page.elements} <= allowed | {"details", "summary"}
    assert not any(key.startswith("on") for _, given in page.elements for key in given)
    assert all(text.isprintable() for text in page.texts)
    assert max(map(len, page.texts)) <= MAX_TEXT + 10
    assert len(page.texts) >= 7


def test_a_shared_name_cannot_end_the_element_that_it_is_in() -> None:
    queue = tf.FIFOQueue(1, [tf.int32], shared_name="</div><script>alert(1)</script>")
    assert "<script" not in queue._repr_html_()
    assert "</div><script>alert(1)</script>" in card(queue).texts


def test_a_long_table_tells_how_many_rows_it_leaves_out() -> None:
    rows = [(str(number),) for number in range(100)]
    page = Page(Card("kind", tables=(CardTable("tasks", ("number",), rows),)).html())
    assert str(MAX_ROWS - 1) in page.texts
    assert str(MAX_ROWS) not in page.texts
    assert f"and {100 - MAX_ROWS} more" in page.texts


def test_facts_without_a_text_and_empty_tables_are_left_out() -> None:
    facts = (("a", ""), ("b", None), ("c", 0))
    page = Page(Card("kind", facts=facts, tables=(CardTable("tasks", ("x",), []),)).html())
    assert [text for text in page.texts if text in {"a", "b", "c", "tasks"}] == ["c"]


def test_each_card_has_a_light_and_a_dark_style() -> None:
    html = Card("kind").html()
    for rule in (
        "prefers-color-scheme:dark",
        '[data-jp-theme-light="false"]',
        '[data-jp-theme-light="true"]',
        ".vscode-dark",
    ):
        assert rule in html


def test_what_changes_the_direction_of_text_is_escaped() -> None:
    assert shown("\u202ex") == "<bdi>\\u202ex</bdi>"


# What is not waited for --------------------------------------------------------------------------


def test_a_question_without_a_reply_in_time_is_given_up() -> None:
    end = threading.Event()
    begun = time.monotonic()
    assert ask(lambda: end.wait(PATIENCE_S), 0.05) is None
    assert time.monotonic() - begun < PATIENCE_S / 2
    end.set()


def test_a_question_that_fails_has_no_reply() -> None:
    def fail() -> int:
        raise ValueError

    assert ask(fail) is None
    assert ask(lambda: 3, PATIENCE_S) == 3


def test_a_card_is_there_although_a_step_holds_the_state() -> None:
    with tf.connect() as connection:
        queue = tf.FIFOQueue(1, tf.float32, ())
        queue.size()
        variable = tf.Variable(1.0, name="held")
        with connection._backend._containers.lock:  # type: ignore[union-attr]
            pages: list[Page] = []
            values = (queue, variable, connection, tf.get_default_graph())
            thread = threading.Thread(target=lambda: pages.extend(map(card, values)), daemon=True)
            thread.start()
            thread.join(PATIENCE_S)
        assert len(pages) == len(values)


def test_a_card_of_a_lost_cluster_does_not_wait_for_it() -> None:
    with tf.LocalCluster(ps=0, workers=1) as cluster, tf.connect(cluster.target()) as connection:
        queue = tf.FIFOQueue(1, tf.float32, ())
        queue.size()
        cluster.kill("worker", 0)
        page = card(queue)
        assert page.fact("size").startswith("unknown") or page.fact("size").isdigit()
        card(connection)
