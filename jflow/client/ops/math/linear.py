"""Linear algebra under TensorFlow's names."""

# Arguments have TensorFlow's names, also where Python has them.
# ruff: noqa: A002

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from jflow.client.ops.lift import lift, operation


def matmul(  # noqa: PLR0913, PLR0917 - the arguments are TensorFlow's
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """Returns the product of matrices, or of batches of them.

    Args:
      a: T[*batch, n, k].
      b: T[*batch, k, m].
      transpose_a, transpose_b: whether to transpose a matrix before.
      adjoint_a, adjoint_b: whether to transpose and conjugate it.
      a_is_sparse, b_is_sparse: hints that XLA does not need.
      name: name of the operation.

    Raises:
      ValueError: if a matrix is to be both transposed and adjoint, or is a vector.
    """
    forms = []
    for is_transposed, is_adjoint in ((transpose_a, adjoint_a), (transpose_b, adjoint_b)):
        if is_transposed and is_adjoint:
            raise ValueError("a matrix can be transposed or adjoint, not both")
        forms.append("adjoint" if is_adjoint else "transpose" if is_transposed else "")
    return _matmul(a, b, form_a=forms[0], form_b=forms[1], name=name)


def _product(a: Any, b: Any, form_a: str, form_b: str) -> Any:
    if jnp.ndim(a) < 2 or jnp.ndim(b) < 2:
        raise ValueError(
            f"matmul takes matrices, got arrays of shape {jnp.shape(a)} and {jnp.shape(b)}; "
            "jflow.numpy.matmul takes vectors too"
        )
    return jnp.matmul(_formed(a, form_a), _formed(b, form_b))


def _formed(x: Any, form: str) -> Any:
    if not form:
        return x
    swapped = jnp.swapaxes(x, -1, -2)
    return jnp.conj(swapped) if form == "adjoint" else swapped


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Any:
    """Returns the sum of products over axes: so many last and first ones, or two lists of axes."""
    pairs = axes if isinstance(axes, int) else tuple(_axes(one) for one in axes)
    return _tensordot(a, b, axes=pairs, name=name)


def _axes(axes: Any) -> Any:
    return axes if isinstance(axes, int) else tuple(axes)


def einsum(equation: str, *inputs: Any, name: str | None = None, **kwargs: Any) -> Any:
    """Returns the sum of products that an equation describes, such as "ij,jk->ik"."""
    return _einsum(equation, *inputs, name=name or "einsum", **kwargs)


def trace(x: Any, name: str | None = None) -> Any:
    """Returns the traces of matrices, T[*batch] of T[*batch, n, n]."""
    return _trace(x, name=name)


def matrix_transpose(a: Any, name: str | None = None, conjugate: bool = False) -> Any:
    """Returns matrices transposed; their conjugates if `conjugate` is set."""
    return _matrix_transpose(a, form="adjoint" if conjugate else "transpose", name=name)


def matrix_diag(diagonal: Any, name: str | None = None) -> Any:
    """Returns matrices with these diagonals, T[*batch, n, n] of T[*batch, n]."""
    return _matrix_diag(diagonal, name=name)


def matrix_diag_part(input: Any, name: str | None = None) -> Any:
    """Returns the main diagonals of matrices."""
    return _matrix_diag_part(input, name=name)


def matrix_band_part(input: Any, num_lower: int, num_upper: int, name: str | None = None) -> Any:
    """Returns matrices with zeros outside of a band around the diagonal.

    Args:
      input: T[*batch, n, m].
      num_lower, num_upper: the diagonals that stay below and above the main one; all if negative.
      name: name of the operation.
    """
    return _band(input, lower=num_lower, upper=num_upper, name=name)


def matrix_determinant(input: Any, name: str | None = None) -> Any:
    """Returns the determinants of matrices."""
    return _det(input, name=name)


def matrix_inverse(input: Any, adjoint: bool = False, name: str | None = None) -> Any:
    """Returns the inverses of matrices, or of their adjoints."""
    return _inverse(input, form="adjoint" if adjoint else "", name=name)


def matrix_solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Any:
    """Returns x for which `matrix @ x` is `rhs`, T[*batch, n, m]."""
    return _solve(matrix, rhs, form="adjoint" if adjoint else "", name=name)


def matrix_triangular_solve(
    matrix: Any, rhs: Any, lower: bool = True, adjoint: bool = False, name: str | None = None
) -> Any:
    """Returns x for which `matrix @ x` is `rhs`, of which only one triangle is read."""
    return _triangular(matrix, rhs, lower=lower, adjoint=adjoint, name=name)


def cholesky(input: Any, name: str | None = None) -> Any:
    """Returns the lower triangular factors of symmetric positive definite matrices.

    Only the lower triangles of these are read; gradients are symmetric.
    """
    return _cholesky(input, name=name)


def cholesky_solve(chol: Any, rhs: Any, name: str | None = None) -> Any:
    """Returns x for which `chol @ adjoint(chol) @ x` is `rhs`."""
    return _cholesky_solve(chol, rhs, name=name)


def qr(input: Any, full_matrices: bool = False, name: str | None = None) -> tuple[Any, Any]:
    """Returns matrices q and r, orthogonal and triangular, whose product is the input."""
    q, r = _qr(input, mode="complete" if full_matrices else "reduced", name=name)
    return q, r


def svd(
    tensor: Any, full_matrices: bool = False, compute_uv: bool = True, name: str | None = None
) -> Any:
    """Returns the singular values of matrices, and, if `compute_uv`, their left and right vectors.

    In the order of TensorFlow, s, u and v, for which `u @ diag(s) @ adjoint(v)` is the matrix.
    """
    return _svd(tensor, full_matrices=full_matrices, compute_uv=compute_uv, name=name)


def self_adjoint_eig(tensor: Any, name: str | None = None) -> tuple[Any, Any]:
    """Returns the eigenvalues and eigenvectors of symmetric matrices, the smallest first.

    Only the lower triangles of these are read.
    """
    values, vectors = _eigh(tensor, name=name)
    return values, vectors


def diag(diagonal: Any, name: str | None = None) -> Any:
    """Returns a tensor of twice the rank with these elements on its diagonal."""
    return _diag(diagonal, name=name)


def diag_part(input: Any, name: str | None = None) -> Any:
    """Returns the diagonal of a tensor whose shape is one shape twice."""
    return _diag_part(input, name=name)


def cross(a: Any, b: Any, name: str | None = None) -> Any:
    """Returns the cross products of vectors of three elements."""
    return _cross(a, b, name=name)


def _banded(x: Any, lower: int, upper: int) -> Any:
    rows, columns = jnp.arange(x.shape[-2])[:, None], jnp.arange(x.shape[-1])[None]
    is_kept = jnp.ones((x.shape[-2], x.shape[-1]), bool)
    if lower >= 0:
        is_kept &= rows - columns <= lower
    if upper >= 0:
        is_kept &= columns - rows <= upper
    return jnp.where(is_kept, x, 0)


def _mirrored(x: Any) -> Any:
    """Returns the symmetric matrices that have these lower triangles."""
    below = _banded(x, -1, 0)
    return below + _formed(jnp.where(jnp.eye(x.shape[-1], dtype=bool), 0, below), "adjoint")


@jax.custom_jvp
def _symmetric(x: Any) -> Any:
    return _mirrored(x)


@_symmetric.defjvp
def _derivative_of_symmetric(primals: Any, tangents: Any) -> Any:
    (x,), (dx,) = primals, tangents
    return _symmetric(x), (dx + _formed(dx, "adjoint")) / 2


def _factor(x: Any) -> Any:
    return jnp.linalg.cholesky(_symmetric(x), symmetrize_input=False)


def _eigen(x: Any) -> tuple[Any, Any]:
    values, vectors = jnp.linalg.eigh(_mirrored(x), symmetrize_input=False)
    return values, vectors


def _solved_triangular(matrix: Any, rhs: Any, lower: bool, adjoint: bool) -> Any:
    trans = "C" if adjoint else "N"
    return jax.scipy.linalg.solve_triangular(matrix, rhs, lower=lower, trans=trans)


def _singular(x: Any, full_matrices: bool, compute_uv: bool) -> Any:
    if not compute_uv:
        return jnp.linalg.svd(x, full_matrices, compute_uv=False)
    u, s, vh = jnp.linalg.svd(x, full_matrices)
    return s, u, _formed(vh, "adjoint")


def _of_diagonal(diagonal: Any) -> Any:
    flat = jnp.diag(jnp.ravel(diagonal))
    return jnp.reshape(flat, (*jnp.shape(diagonal), *jnp.shape(diagonal)))


def _diagonal_of(x: Any) -> Any:
    half = jnp.shape(x)[: jnp.ndim(x) // 2]
    if jnp.ndim(x) % 2 or half != jnp.shape(x)[jnp.ndim(x) // 2 :]:
        raise ValueError(f"expected a tensor whose shape is one shape twice, got {jnp.shape(x)}")
    n = math.prod(half)
    return jnp.reshape(jnp.diagonal(jnp.reshape(x, (n, n))), half)


_matmul = operation(_product, "MatMul")
_tensordot = operation(jnp.tensordot, "Tensordot")
_einsum = lift(jnp.einsum)
_trace = operation(lambda x: jnp.trace(x, axis1=-2, axis2=-1), "Trace")
_matrix_transpose = operation(_formed, "matrix_transpose")
_matrix_diag = operation(lambda x: jnp.eye(x.shape[-1], dtype=x.dtype) * x[..., None, :], "diag")
_matrix_diag_part = operation(lambda x: jnp.diagonal(x, axis1=-2, axis2=-1), "diag_part")
_band = operation(_banded, "MatrixBandPart")
_det = operation(jnp.linalg.det, "MatrixDeterminant")
_inverse = operation(lambda x, form: jnp.linalg.inv(_formed(x, form)), "MatrixInverse")
_solve = operation(lambda a, b, form: jnp.linalg.solve(_formed(a, form), b), "MatrixSolve")
_triangular = operation(_solved_triangular, "MatrixTriangularSolve")
_cholesky = operation(_factor, "Cholesky")
_cholesky_solve = operation(
    lambda chol, rhs: jax.scipy.linalg.cho_solve((chol, True), rhs), "cholesky_solve"
)
_qr = operation(lambda x, mode: tuple(jnp.linalg.qr(x, mode)), "Qr")
_svd = operation(_singular, "Svd")
_eigh = operation(_eigen, "SelfAdjointEigV2")
_diag = operation(_of_diagonal, "Diag")
_diag_part = operation(_diagonal_of, "DiagPart")
_cross = operation(jnp.cross, "Cross")
