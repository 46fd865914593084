"""Positions, errors and ends of iterators."""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
import threading
import time
import traceback

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow import errors
from jflow.data import Dataset, FilePosition
from jflow.testing import PATIENCE_S, wait_until
from tests.data.chains import as_lists, chains, modelled_transforms, shuffles


def no_more_threads_than(before: set[threading.Thread]) -> bool:
    return not set(threading.enumerate()) - before


@given(chains(modelled_transforms() | shuffles()), st.integers(1, 3), st.data())
def test_a_position_continues_with_exactly_the_next_element(chain, size, data) -> None:
    dataset = chain.build().batch(size)
    everything = as_lists(dataset)
    given_before = data.draw(st.integers(0, len(everything)))
    with dataset.iterator() as first:
        head = [next(first) for _ in range(given_before)]
        state = json.loads(json.dumps(first.get_state()))
    with chain.build().batch(size).iterator() as second:
        second.set_state(state)
        tail = as_lists(second)
    assert as_lists(head) + tail == everything


@given(chains(modelled_transforms() | shuffles()), st.data())
def test_an_iterator_goes_back_and_forth(chain, data) -> None:
    everything = as_lists(chain.build())
    with chain.build().iterator() as iterator:
        states = [iterator.get_state()]
        for _ in iterator:
            states.append(iterator.get_state())
        assert len(states) == len(everything) + 1
        for number in data.draw(st.lists(st.sampled_from(range(len(states))), max_size=3)):
            iterator.set_state(states[number])
            assert as_lists(iterator) == everything[number:]


def ramp(x):
    return Dataset.range(int(x) * 10, int(x) * 10 + 4)


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda: Dataset.range(5).interleave(ramp, cycle_length=2, block_length=3),
        lambda: Dataset.range(3).interleave(ramp, 2).interleave(ramp, 3, 2).take(40),
        lambda: Dataset.range(7).batch(3).unbatch().interleave(ramp, 3),
        lambda: Dataset.range(9).filter(bool).shuffle(4).interleave(ramp, 2).repeat(2),
        lambda: Dataset.range(9).map(abs, 3).shuffle(4).concatenate(ramp(1)).batch(2).unbatch(),
    ],
)
def test_every_position_of_a_pipeline_can_be_gone_to(pipeline) -> None:
    everything = as_lists(pipeline())
    with pipeline().iterator() as iterator:
        states = [iterator.get_state() for _ in iterator]
    assert len(states) == len(everything)
    for number, state in enumerate(states, 1):
        with pipeline().iterator() as again:
            again.set_state(state)
            assert as_lists(again) == everything[number:]


def test_threads_and_reading_ahead_are_no_part_of_a_position() -> None:
    def pipeline(threads: int | None) -> Dataset:
        source = Dataset.range(20).shuffle(seed=3).map(abs, threads).filter(bool)
        return source.map(abs, threads).batch(3)

    with pipeline(4).prefetch(2).iterator() as first:
        next(first)
        state = first.get_state()
        rest = as_lists(first)
    with pipeline(None).iterator() as second:
        second.set_state(state)
        assert as_lists(second) == rest


PIPELINE = """
import json, sys
from jflow.data import Dataset, register_generator

@register_generator("tests.squares")
def squares(n):
    for i in range(n):
        yield i * i

def pipeline():
    return Dataset.from_generator("tests.squares", [50]).shuffle(8, seed=5).batch(4).repeat(2)

if __name__ == "__main__":
    with pipeline().iterator() as iterator:
        iterator.set_state(json.load(sys.stdin))
        json.dump([element.tolist() for element in iterator], sys.stdout)
"""


def test_a_registered_generator_is_continued_in_another_process(tmp_path) -> None:
    script = tmp_path / "pipeline.py"
    script.write_text(PIPELINE)
    module: dict[str, object] = {"__name__": "pipeline"}
    exec(PIPELINE, module)
    with module["pipeline"]().iterator() as iterator:  # type: ignore[operator]
        for _ in range(15):
            next(iterator)
        state = iterator.get_state()
        rest = as_lists(iterator)
    assert "from_generator(tests.squares, [50])" in state["pipeline"]
    done = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps(state),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == rest


class TestRefusedStates:
    def test_one_of_another_pipeline_says_what_differs(self) -> None:
        state = Dataset.range(9).shuffle(seed=1).batch(4).iterator().get_state()
        other = Dataset.range(9).shuffle(seed=2).batch(4).iterator()
        next(other)
        with pytest.raises(errors.FailedPreconditionError, match=r"1 is shuffle\(.*seed=1"):
            other.set_state(state)
        longer = Dataset.range(9).shuffle(seed=1).batch(4).take(1).iterator()
        with pytest.raises(errors.FailedPreconditionError, match=r"transform 3 is missing.*take"):
            longer.set_state(state)
        assert len(next(other)) == 4

    def test_what_is_no_state_is_refused(self) -> None:
        iterator = Dataset.range(9).iterator()
        for value in (None, 3, {}, {"next_index": 3}):
            with pytest.raises(errors.InvalidArgumentError, match="get_state"):
                iterator.set_state(value)
        future = {**iterator.get_state(), "format": 2}
        with pytest.raises(errors.FailedPreconditionError, match="format 2"):
            iterator.set_state(future)

    def test_a_source_that_became_shorter_is_not_taken_for_the_old_one(self) -> None:
        lengths = [9]

        def source():
            return range(lengths[0])

        with Dataset.from_generator(source).iterator() as iterator:
            for _ in range(5):
                next(iterator)
            state = iterator.get_state()
            lengths[0] = 3
            iterator.set_state(state)
            with pytest.raises(errors.DataLossError, match=r"3 elements now.*after element 5"):
                next(iterator)


class Kept:
    """A store in memory that keeps all texts that were saved."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def load(self) -> str | None:
        return self.texts[-1] if self.texts else None

    def save(self, text: str) -> None:
        self.texts.append(text)


class TestKeptPositions:
    def test_the_next_life_goes_on_where_one_was_closed(self) -> None:
        store, dataset = Kept(), Dataset.range(10).batch(2)
        with dataset.iterator(position=store) as iterator:
            head = [next(iterator), next(iterator)]
        with dataset.iterator(position=store) as iterator:
            assert as_lists([*head, *iterator]) == as_lists(dataset)
        with dataset.iterator(position=store) as iterator:
            assert list(iterator) == []

    def test_it_is_saved_every_few_elements_once_they_are_done_with(self) -> None:
        store, dataset = Kept(), Dataset.range(10)
        iterator = dataset.iterator(position=store, save_every=3)
        for _ in range(3):
            next(iterator)
        assert not store.texts  # Element 2 is still in the caller's hands.
        next(iterator)
        assert len(store.texts) == 1
        # A process that died here would begin again with element 3.
        assert next(dataset.iterator(position=store)) == 3

    def test_an_element_in_hand_is_given_again_after_an_error(self) -> None:
        store, dataset = Kept(), Dataset.range(10)

        def train() -> None:
            with dataset.iterator(position=store, save_every=1) as iterator:
                for element in iterator:
                    if element == 5:
                        raise KeyError

        with pytest.raises(KeyError):
            train()
        with dataset.iterator(position=store) as iterator:
            assert next(iterator) == 5

    def test_one_of_another_pipeline_is_refused_at_once_and_kept(self) -> None:
        store = Kept()
        Dataset.range(10).iterator(position=store).close()
        with pytest.raises(errors.FailedPreconditionError, match="range"):
            Dataset.range(11).iterator(position=store)
        assert len(store.texts) == 1

    def test_a_file(self, tmp_path) -> None:
        dataset, path = Dataset.range(4), tmp_path / "position.json"
        with dataset.iterator(position=FilePosition(path)) as iterator:
            next(iterator)
        assert as_lists(dataset.iterator(position=FilePosition(path))) == [1, 2, 3]
        path.write_text("{")
        with pytest.raises(errors.DataLossError, match="not JSON"):
            dataset.iterator(position=FilePosition(path))
        assert [file.name for file in tmp_path.iterdir()] == ["position.json"]


def threaded() -> Dataset:
    inner = Dataset.range(8).map(abs, num_parallel_calls=2).prefetch(2)
    many = Dataset.range(100).filter(lambda _: True).map(abs, num_parallel_calls=3).prefetch(3)
    return many.interleave(lambda x: inner, cycle_length=3).prefetch(2).repeat()


class TestEnds:
    def test_an_early_stop_leaves_no_thread(self) -> None:
        before = set(threading.enumerate())
        with threaded().iterator() as iterator:
            next(iterator)
            assert not no_more_threads_than(before)
        assert no_more_threads_than(before)

    def test_a_loop_that_is_left_leaves_no_thread(self) -> None:
        before = set(threading.enumerate())
        for _ in threaded():
            break
        assert no_more_threads_than(before)

    def test_an_end_leaves_no_thread(self) -> None:
        before = set(threading.enumerate())
        assert len(list(threaded().take(30))) == 30
        assert no_more_threads_than(before)

    @pytest.mark.parametrize(
        "reading",
        [
            lambda dataset, collects: dataset.filter(collects).prefetch(2),
            lambda dataset, collects: dataset.map(collects, num_parallel_calls=2).filter(bool),
        ],
        ids=["prefetch", "map in threads"],
    )
    def test_a_thread_may_collect_the_iterator_that_it_reads_for(self, reading) -> None:
        before, dropped, collected = set(threading.enumerate()), threading.Event(), []

        def collects(x):
            if x > 0:
                assert dropped.wait(PATIENCE_S)
                gc.collect()
                collected.append(threading.current_thread())
            return True

        iterator = reading(Dataset.range(9), collects).iterator()
        circle = [iterator]
        circle.append(circle)
        next(iterator)
        gc.disable()  # so that no other thread collects it
        try:
            del iterator, circle
            dropped.set()
            wait_until(lambda: collected and no_more_threads_than(before), "the threads to end")
        finally:
            gc.enable()
        assert collected[0] not in before

    def test_a_closed_iterator_says_so(self) -> None:
        iterator = Dataset.range(3).iterator()
        next(iterator)
        iterator.close()
        iterator.close()
        for use in (lambda: next(iterator), iterator.get_state, lambda: iterator.set_state({})):
            with pytest.raises(errors.FailedPreconditionError, match="closed"):
                use()

    def test_a_generator_is_closed_with_its_iterator(self) -> None:
        ended = []

        def numbers():
            try:
                yield from range(9)
            finally:
                ended.append(True)

        held = numbers()  # As a traceback may hold it.
        with Dataset.from_generator(lambda: held).batch(2).iterator() as iterator:
            next(iterator)
            assert not ended
        assert ended

    def test_threads_share_an_iterator(self) -> None:
        def numbers():
            for number in range(500):
                time.sleep(0)  # Lets the other threads in, which a generator would not survive.
                yield number

        iterator = Dataset.from_generator(numbers).iterator()
        got: list[list[int]] = [[] for _ in range(4)]
        threads = [
            threading.Thread(target=lambda mine=mine: mine.extend(int(x) for x in iterator))
            for mine in got
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        iterator.close()
        assert sorted(itertools.chain(*got)) == list(range(500))


def brittle(x):
    if x == 7:
        raise KeyError("no such label")
    return x


class TestErrors:
    @pytest.mark.parametrize("threads", [None, 3], ids=["in this thread", "in threads"])
    @pytest.mark.parametrize("stream", [False, True], ids=["by number", "as a stream"])
    def test_one_in_a_function_says_which_and_where(self, stream, threads) -> None:
        source = Dataset.range(5, 20)
        if stream:
            source = source.skip(0).filter(lambda _: True)
        dataset = source.map(brittle, num_parallel_calls=threads)
        before = set(threading.enumerate())
        with dataset.iterator() as iterator:
            assert [next(iterator), next(iterator)] == [5, 6]
            with pytest.raises(KeyError, match="no such label") as caught:
                next(iterator)
            # The element that failed is the next one still.
            assert iterator.get_state()["position"] != dataset.iterator().get_state()["position"]
            with pytest.raises(KeyError):
                next(iterator)
        text = "".join(traceback.format_exception(caught.value))
        assert "in map(brittle) of a dataset, at element 2 (counted from 0)" in text
        assert 'raise KeyError("no such label")' in text
        assert no_more_threads_than(before)

    def test_a_passing_trouble_loses_no_element(self) -> None:
        troubles = [OSError("the disk is away"), None]

        def read(x):
            trouble = troubles.pop(0) if x == 3 and troubles else None
            if trouble is not None:
                raise trouble
            return x

        with Dataset.range(8).filter(lambda _: True).map(read).batch(2).iterator() as iterator:
            head = [next(iterator)]
            with pytest.raises(OSError, match="away"):
                next(iterator)
            assert as_lists([*head, *iterator]) == [[0, 1], [2, 3], [4, 5], [6, 7]]

    def test_the_end_of_a_users_iterator_is_not_the_end_of_the_data(self) -> None:
        for dataset in (
            Dataset.range(4).map(lambda x: next(iter(()))),
            Dataset.range(4).filter(lambda x: next(iter(()))),
            Dataset.range(4).interleave(lambda x: next(iter(()))),
        ):
            with pytest.raises(RuntimeError, match="raised StopIteration at element 0"):
                list(dataset)

    @pytest.mark.parametrize("threads", [None, 3])
    def test_a_generator_that_fails(self, threads) -> None:
        def numbers():
            yield 1
            raise KeyError("no such file")

        with Dataset.from_generator(numbers).map(abs, threads).iterator() as iterator:
            assert next(iterator) == 1
            with pytest.raises(KeyError) as caught:
                next(iterator)
        assert "in from_generator(numbers, []) of a dataset, at element 1" in "".join(
            traceback.format_exception(caught.value)
        )

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda d: d.map(lambda x: None), "got None"),
            (lambda d: d.map(lambda x: object()), "must be arrays"),
            (lambda d: Dataset.from_iterable([1, None]), "got None"),
            (lambda d: d.interleave(lambda x: [x]), "must return a Dataset, got list"),
            (lambda d: d.unbatch(), "first axis"),
        ],
    )
    def test_what_is_no_element_is_refused(self, make, message) -> None:
        with pytest.raises(errors.InvalidArgumentError, match=message):
            list(make(Dataset.range(3)))


def test_elements_of_jax_and_of_python_become_numpys() -> None:
    made = next(iter(Dataset.range(1).map(lambda x: (jnp.ones(2), 1.5, True, "a", b"b\0"))))
    assert [type(leaf) for leaf in made] == [np.ndarray, np.float64, np.bool_, str, bytes]
