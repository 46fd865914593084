"""Grain, the library that this room is built on: imported here, so that its absence has one error.

Grain is a dependency of jflow; it is missing only where jflow was installed without dependencies.
"""

try:
    import grain as grain
    from grain import experimental as experimental
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"jflow.data is built on Grain, which cannot be imported here ({error}); pip install grain",
        name=error.name,
    ) from error
