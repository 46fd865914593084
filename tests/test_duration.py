import pytest

from jflow.deadline import duration_text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.05, "50 ms"),
        (0.0004, "400 µs"),
        (1e-9, "0.001 µs"),
        (0.9996, "1 s"),
        (0.99949, "999 ms"),
        (1, "1 s"),
        (1.5, "1.5 s"),
        (12.345, "12.3 s"),
        (999.6, "1000 s"),
        (86400, "86400 s"),
        (float("inf"), "inf s"),
    ],
)
def test_a_duration_has_its_unit_and_enough_digits(seconds, text):
    assert duration_text(seconds) == text
