"""Programs that would crash, or occupy for ever, a process that compiles and runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import jax
import jax.export
import numpy as np

from jflow.plan.xla import internals

F32 = "tensor<f32>"
VECTOR = "tensor<5000xf32>"


def exported(module: str, arguments: Sequence[tuple[int, ...]], n_results: int = 1) -> bytes:
    """A serialized program of float32 arguments, with a module of one's own.

    Args:
      module: what it consists of, with a function `main`.
      arguments: the shapes of its arguments; results are as the first.
      n_results: the number of its results.
    """
    shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in arguments]
    like = jax.export.export(jax.jit(lambda *xs: [xs[0]] * n_results), platforms=["cpu"])(*shapes)
    with jax.jit(lambda x: x).lower(1.0).compiler_ir("stablehlo").context:
        data = internals.serialized_program(internals.MLIR.Module.parse(module))
    return bytes(dataclasses.replace(like, mlir_module_serialized=data).serialize())


def _main(body: str, kind: str = F32, functions: str = "") -> str:
    return f"module {{ func.func public @main(%x: {kind}) -> {kind} {{ {body} }} {functions} }}"


def _sort(comparator: str) -> str:
    return _main(
        f"""%r = "stablehlo.sort"(%x) <{{dimension = 0 : i64}}> ({{
        ^bb0(%a: {F32}, %b: {F32}):
          {comparator}
        }}) : ({VECTOR}) -> {VECTOR}
        return %r : {VECTOR}""",
        VECTOR,
    )


def _nested_ifs(depth: int) -> str:
    otherwise = f"stablehlo.return %x : {F32} }}) : (tensor<i1>) -> {F32}"
    opened = [f'%r{i} = "stablehlo.if"(%p) ({{' for i in range(depth)]
    inner = ["%x", *(f"%r{i}" for i in range(depth - 1, 0, -1))]
    closed = [f"stablehlo.return {value} : {F32} }}, {{ {otherwise}" for value in inner]
    less = f"%p = stablehlo.compare LT, %x, %x : ({F32}, {F32}) -> tensor<i1>"
    return _main("\n".join((less, *opened, *closed, f"return %r0 : {F32}")))


def _calls(*edges: tuple[str, str]) -> str:
    return "\n".join(
        f"""func.func private @{one}(%x: {F32}) -> {F32} {{
          %r = func.call @{other}(%x) : ({F32}) -> {F32}
          return %r : {F32}
        }}"""
        for one, other in edges
    )


def _doubling(n: int) -> str:
    functions = "\n".join(
        f"""func.func private @f{i}(%x: {F32}) -> {F32} {{
          %a = func.call @f{i + 1}(%x) : ({F32}) -> {F32}
          %b = func.call @f{i + 1}(%a) : ({F32}) -> {F32}
          return %b : {F32}
        }}"""
        for i in range(n)
    )
    return _main(
        f"%r = func.call @f0(%x) : ({F32}) -> {F32} return %r : {F32}",
        functions=functions
        + f"func.func private @f{n}(%x: {F32}) -> {F32} {{ return %x : {F32} }}",
    )


_HUGE = "tensor<4611686018427387904xf32>"
_WIDE = "tensor<2147483648x2147483648x2147483648xf32>"
_TRUE = "%t = stablehlo.constant dense<true> : tensor<i1> stablehlo.return %t : tensor<i1>"
_SINE = f"""%p = stablehlo.multiply %a, %b : {F32}
%s = stablehlo.sine %p : {F32}
%h = stablehlo.constant dense<-0.5> : {F32}
%l = stablehlo.compare GE, %s, %h : ({F32}, {F32}) -> tensor<i1>
stablehlo.return %l : tensor<i1>"""
_PARTIAL = f"""%l = stablehlo.compare LT, %a, %b, FLOAT : ({F32}, {F32}) -> tensor<i1>
stablehlo.return %l : tensor<i1>"""
_OTHER_KEYS = f"""%n = stablehlo.negate %b : {F32}
%l = stablehlo.compare LT, %a, %n, TOTALORDER : ({F32}, {F32}) -> tensor<i1>
stablehlo.return %l : tensor<i1>"""
_WHILE_MAIN = f"""%r = "stablehlo.while"(%x) ({{
^bb0(%i: {F32}): {_TRUE} }}, {{
^bb0(%i: {F32}):
  %n = func.call @main(%i) : ({F32}) -> {F32}
  stablehlo.return %n : {F32} }}) : ({F32}) -> {F32}
return %r : {F32}"""


def _summed(kind: str, dims: str) -> str:
    return f"""%z = stablehlo.constant dense<0.0> : {F32}
%r = "stablehlo.reduce"(%h, %z) <{{dimensions = array<i64: {dims}>}}> ({{
^bb0(%a: {F32}, %b: {F32}):
  %c = stablehlo.add %a, %b : {F32}
  stablehlo.return %c : {F32} }}) : ({kind}, {F32}) -> {F32}
return %r : {F32}"""


def _summed_iota(kind: str, dims: str) -> str:
    return f"%h = stablehlo.iota dim = 0 : {kind}\n" + _summed(kind, dims)


_WINDOW = f"""%z = stablehlo.constant dense<0.0> : {F32}
%r = "stablehlo.reduce_window"(%x, %z) <{{
  window_dimensions = array<i64: 4611686018427387904>,
  padding = dense<[[2305843009213693952, 2305843009213690000]]> : tensor<1x2xi64>
}}> ({{
^bb0(%a: {F32}, %b: {F32}): stablehlo.return %a : {F32} }}) : ({VECTOR}, {F32}) -> tensor<1049xf32>
%s = stablehlo.slice %r [0:1] : (tensor<1049xf32>) -> tensor<1xf32>
%y = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<1xf32>) -> {VECTOR}
return %y : {VECTOR}"""

REFUSED: dict[str, tuple[str, tuple[int, ...], str]] = {
    "a comparator of products": (_sort(_SINE), (5000,), "comparator"),
    "a comparator that is always true": (_sort(_TRUE), (5000,), "comparator"),
    "a comparator of floats that leaves out NaNs": (_sort(_PARTIAL), (5000,), "comparator"),
    "a comparator of different keys": (_sort(_OTHER_KEYS), (5000,), "comparator"),
    "a size whose bytes overflow": (_main(_summed_iota(_HUGE, "0")), (), "at most"),
    "sizes whose product overflows": (_main(_summed_iota(_WIDE, "0, 1, 2")), (), "at most"),
    "nested branches": (_nested_ifs(2000), (), "nests"),
    "recursion": (
        _main(
            f"%r = func.call @f(%x) : ({F32}) -> {F32} return %r : {F32}", F32, _calls(("f", "f"))
        ),
        (),
        "recursive",
    ),
    "mutual recursion": (
        _main(
            f"%r = func.call @f(%x) : ({F32}) -> {F32} return %r : {F32}",
            F32,
            _calls(("f", "g"), ("g", "f")),
        ),
        (),
        "recursive",
    ),
    "a loop that calls main": (_main(_WHILE_MAIN), (), "recursive"),
    "functions that double": (_doubling(40), (), "operations, if each call"),
    "a huge constant": (
        _main(
            "%h = stablehlo.constant dense<0.0> : tensor<1099511627776xf32>\n"
            + _summed("tensor<1099511627776xf32>", "0")
        ),
        (),
        "constants",
    ),
    "an infeed": (
        _main(
            "%t = stablehlo.create_token : !stablehlo.token "
            f'%r:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> ({F32}, !stablehlo.token) '
            f"return %r#0 : {F32}"
        ),
        (),
        "infeed|create_token",
    ),
    "an outfeed": (
        _main(
            "%t = stablehlo.after_all : !stablehlo.token "
            f'%r = "stablehlo.outfeed"(%x, %t) : ({F32}, !stablehlo.token) -> !stablehlo.token '
            f"return %x : {F32}"
        ),
        (),
        "outfeed|after_all",
    ),
    "a window that overflows": (_main(_WINDOW, VECTOR), (5000,), "a window over"),
}
"""Programs by what is wrong with them: the module, the shape of its argument, the refusal."""


def program(name: str) -> bytes:
    """A serialized program of `REFUSED`."""
    module, shape, _ = REFUSED[name]
    return exported(module, [shape])
