"""Initial values of variables, under TensorFlow's name tf.initializers."""

from typing import NoReturn as _NoReturn

from jflow.api.missing import missing as _missing
from jflow.base import tracebacks as _tracebacks
from jflow.client.ops import global_variables_initializer as global_variables
from jflow.client.ops import local_variables_initializer as local_variables
from jflow.client.ops import tables_initializer as tables_initializer
from jflow.client.ops import variables_initializer as variables
from jflow.client.variables import Constant as constant
from jflow.client.variables import GlorotNormal as glorot_normal
from jflow.client.variables import GlorotUniform as glorot_uniform
from jflow.client.variables import Identity as identity
from jflow.client.variables import Ones as ones
from jflow.client.variables import Orthogonal as orthogonal
from jflow.client.variables import RandomNormal as random_normal
from jflow.client.variables import RandomUniform as random_uniform
from jflow.client.variables import TruncatedNormal as truncated_normal
from jflow.client.variables import VarianceScaling as variance_scaling
from jflow.client.variables import Zeros as zeros
from jflow.client.variables import he_normal as he_normal
from jflow.client.variables import he_uniform as he_uniform
from jflow.client.variables import lecun_normal as lecun_normal
from jflow.client.variables import lecun_uniform as lecun_uniform

__all__ = [
    "constant",
    "global_variables",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "local_variables",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "tables_initializer",
    "truncated_normal",
    "variables",
    "variance_scaling",
    "zeros",
]


def __getattr__(name: str) -> _NoReturn:
    raise _missing(__name__, name, __all__)


_tracebacks.end_here(globals())
