import copy
import pickle

import pytest

from jflow import errors

KINDS = sorted(errors.OpError.__subclasses__(), key=lambda kind: kind.error_code)


def test_there_is_one_class_for_each_status_code():
    assert [kind.error_code for kind in KINDS] == list(errors.Code)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_class_is_named_after_its_code(kind):
    words = kind.error_code.name.title().replace("_", "")
    assert kind.__name__ == f"{words}Error"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_code_on_the_wire_gives_the_class_back(kind):
    error = errors.from_code(int(kind.error_code), "it broke", op="x", task="/job:ps/task:0")
    assert type(error) is kind
    assert (error.message, error.op, error.task) == ("it broke", "x", "/job:ps/task:0")


@pytest.mark.parametrize("code", [0, 17, -1, 1000])
def test_a_code_that_nobody_knows_is_an_unknown_error(code):
    assert type(errors.from_code(code, "what?")) is errors.UnknownError


@pytest.mark.parametrize("through", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copied_error_keeps_what_it_knows(through):
    error = errors.AbortedError("gone", op="x", task="/job:ps/task:0")
    again = through(error)
    assert type(again) is errors.AbortedError
    assert (again.message, again.op, again.task) == (error.message, error.op, error.task)


def test_the_message_is_what_str_shows():
    assert str(errors.NotFoundError("no such thing")) == "no such thing"
