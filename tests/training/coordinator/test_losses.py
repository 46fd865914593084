"""What errors of closures say about the cluster."""

import pytest

from jflow import errors
from jflow.base.cluster import Task
from jflow.training.coordinator.losses import Loss, LossKind, Tolerance, loss_of

PS, OTHER_PS, WORKER, OTHER = Task("ps", 0), Task("ps", 1), Task("worker", 0), Task("worker", 1)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.UnavailableError("", task=str(PS)), Loss(LossKind.STATE, PS)),
        (errors.RestartedError("", task=str(PS)), Loss(LossKind.STATE, PS)),
        (errors.UnavailableError("", task=str(WORKER)), Loss(LossKind.WORKER, WORKER)),
        (errors.RestartedError("", task=str(OTHER)), Loss(LossKind.WORKER, OTHER)),
        (errors.UnavailableError(""), Loss(LossKind.WORKER, WORKER)),
        (errors.UnavailableError("", task="no task"), Loss(LossKind.WORKER, WORKER)),
        (errors.FailedPreconditionError("", task=str(PS)), Loss(LossKind.VALUES, PS)),
        (errors.FailedPreconditionError("", task=str(WORKER)), None),
        (errors.FencedError("", task=str(PS)), Loss(LossKind.CLAIM, PS)),
        (errors.AbortedError("/job:ps/task:0 has restarted", task=str(PS)), None),
        (errors.InvalidArgumentError("/job:ps/task:0 is lost", task=str(PS)), None),
        (ValueError("/job:ps/task:0"), None),
    ],
)
def test_the_class_and_the_task_of_an_error_say_what_was_lost_and_its_text_says_nothing(
    error, expected
):
    assert loss_of(error, WORKER, [PS, OTHER_PS]) == expected


def test_a_server_that_answers_may_be_reported_a_few_times_in_a_row():
    tolerance = Tolerance(2)
    assert [tolerance.reported(PS) for _ in range(3)] == [True, True, False]
    assert tolerance.reported(OTHER_PS), "servers are counted apart"
    tolerance.succeeded()
    assert tolerance.reported(PS)
