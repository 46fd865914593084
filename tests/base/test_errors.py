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


def test_a_class_that_shares_its_code_is_named_beside_it():
    error = errors.NotANumberError("x", "float32", (3,))
    assert errors.class_name(error) == "NotANumberError"
    assert errors.class_name(errors.NotFoundError("x")) == ""
    code = int(error.error_code)
    again = errors.from_code(code, error.message, op="x", class_name="NotANumberError")
    assert type(again) is errors.NotANumberError
    assert type(errors.from_code(code, error.message)) is errors.InvalidArgumentError
    assert type(errors.from_code(5, "x", class_name="NotANumberError")) is errors.NotFoundError
    assert type(errors.from_code(5, "x", class_name="SystemExit")) is errors.NotFoundError


@pytest.mark.parametrize("code", [0, 17, -1, 1000])
def test_a_code_that_is_not_known_is_an_unknown_error(code):
    assert type(errors.from_code(code, "what?")) is errors.UnknownError


@pytest.mark.parametrize("through", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copied_error_keeps_what_it_knows(through):
    error = errors.AbortedError("gone", op="x", task="/job:ps/task:0")
    again = through(error)
    assert type(again) is errors.AbortedError
    assert (again.message, again.op, again.task) == (error.message, error.op, error.task)


def test_an_error_takes_context_on_its_way_and_keeps_what_it_knew_before():
    error = errors.NotANumberError("x", "float32", (3,))
    error.with_context(op="y", task="/job:ps/task:0")
    error.with_context(task="/job:worker/task:1", doing="the step failed")
    error.with_context(made_at="train.py:3")
    error.with_context(made_at="train.py:3")
    assert (error.op, error.task) == ("x", "/job:ps/task:0")
    assert str(error) == error.message
    assert error.message.startswith("the step failed: invalid value (nan) encountered in 'x'")
    assert error.message.count("['x' was made at train.py:3]") == 1
    assert error.message.endswith("['x' was made at train.py:3]")


def test_the_message_is_what_str_shows():
    assert str(errors.NotFoundError("no such thing")) == "no such thing"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_error_is_made_as_in_tensorflow(kind):
    for error in (kind(None, None, "x"), kind(node_def=None, op=None, message="x"), kind("x")):
        assert (error.node_def, error.op, error.message, str(error)) == (None, None, "x", "x")
        assert error.error_code is kind.error_code
        assert error.task is None
    error = kind("node", "an operation", "it broke")
    assert (error.node_def, error.op, error.message) == ("node", "an operation", "it broke")
    again = pickle.loads(pickle.dumps(error))
    assert (again.node_def, again.op, again.message) == ("node", "an operation", "it broke")


def test_the_base_of_all_errors_takes_a_code():
    error = errors.OpError(None, None, "x", errors.Code.ABORTED)
    assert error.error_code is errors.Code.ABORTED
    assert copy.copy(error).error_code is errors.Code.ABORTED
    assert errors.OpError(None, None, "x", 11).error_code is errors.Code.OUT_OF_RANGE


@pytest.mark.parametrize(
    "arguments",
    [(), ("a", "b"), (None, None), (None, None, None), (None,), (1, 2, 3), ("a", "b", "c", 1, 2)],
)
def test_other_arguments_of_an_error_are_refused(arguments):
    with pytest.raises(TypeError, match=r"AbortedError takes \(message, op=None, task=None\)"):
        errors.AbortedError(*arguments)
    with pytest.raises(TypeError, match="as in TensorFlow"):
        errors.AbortedError("x", message="x")


def test_codes_have_the_names_that_tensorflow_gives_them():
    for code in errors.Code:
        assert getattr(errors, code.name) is code
    error = errors.OutOfRangeError("the end")
    assert error.error_code == errors.OUT_OF_RANGE != errors.OK == 0
