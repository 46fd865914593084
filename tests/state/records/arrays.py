"""Arrays of strings."""

import numpy as np

from jflow.base.values import as_strings


def strings(*items):
    """string[n]"""
    return np.empty(0, object) if not items else as_strings(list(items))
