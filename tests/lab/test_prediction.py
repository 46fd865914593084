"""How good predictions are, on numbers whose answers are known."""

from __future__ import annotations

import math

import pytest

from jflow.errors import InvalidArgumentError
from jflow.lab.calibration.report import check_predictions


def test_exact_predictions_have_no_error_and_no_regret() -> None:
    check = check_predictions([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [0.0] * 3)
    assert (check.median_error, check.p90_error, check.regret) == (0.0, 0.0, 0.0)
    assert check.tau == check.tau_beyond_noise == 1.0


def test_errors_are_relative_to_the_measured_time() -> None:
    assert check_predictions([1.5, 2.0], [1.0, 4.0], [0.1, 0.3]).errors == (0.5, 0.5)
    assert check_predictions([1.5, 2.0], [1.0, 4.0], [0.1, 0.3]).noise == pytest.approx(0.2)


def test_the_regret_is_that_of_the_plan_that_is_predicted_to_be_best() -> None:
    assert check_predictions([1.0, 2.0], [6.0, 4.0], [0.0, 0.0]).regret == pytest.approx(0.5)


def test_plans_that_differ_by_less_than_the_noise_do_not_count_for_the_order() -> None:
    check = check_predictions([1.0, 2.0, 3.0], [1.01, 1.0, 2.0], [0.05] * 3)
    assert check.n_pairs == 2
    assert check.tau_beyond_noise == 1.0
    assert check.tau < 1.0


def test_an_order_that_is_reversed_is_minus_one() -> None:
    assert check_predictions([3.0, 2.0, 1.0], [1.0, 2.0, 3.0], [0.0] * 3).tau_beyond_noise == -1.0


def test_one_plan_has_no_order() -> None:
    check = check_predictions([1.0], [2.0], [0.0])
    assert math.isnan(check.tau)
    assert math.isnan(check.tau_beyond_noise)
    assert "1 plans: error 50.0% median" in check.text()


@pytest.mark.parametrize(("predicted", "measured"), [([], []), ([1.0], [1.0, 2.0]), ([1.0], [0.0])])
def test_numbers_that_do_not_fit_are_refused(predicted, measured) -> None:
    with pytest.raises(InvalidArgumentError, match="expected"):
        check_predictions(predicted, measured, [0.0] * len(measured))
