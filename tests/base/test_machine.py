"""What is said of a machine whose results may have other bits."""

from __future__ import annotations

from msgspec.structs import replace as changed

from jflow.base.machine import ExecutionPlatform, this_platform

HERE = ExecutionPlatform("a processor", ("avx", "avx2"), 8, "0.10.2", "")


def test_equal_platforms_have_no_differences() -> None:
    other_name = changed(HERE, processor="another one with the same features")
    assert not [*HERE.differences(HERE), *HERE.differences(other_name)]


def test_each_difference_is_said() -> None:
    other = ExecutionPlatform("a processor", ("avx", "fma"), 2, "0.12.0", "--xla_x=1")
    assert [*other.differences(HERE)] == [
        "jaxlib 0.12.0 instead of 0.10.2",
        "n_cores 2 instead of 8",
        "xla_flags --xla_x=1 instead of unset",
        "a processor without avx2, with fma",
    ]


def test_this_process_has_a_platform() -> None:
    platform = this_platform()
    assert platform.processor
    assert platform.n_cores >= 1
    assert ExecutionPlatform.from_bytes(platform.to_bytes()) == platform
