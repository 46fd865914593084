"""The one import of Grain, with an error that tells how to install it.

Grain is a dependency of jflow; it is missing only if jflow was installed without dependencies.
"""

try:
    import grain as grain
    from grain import experimental as experimental
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"jflow.data requires Grain, which cannot be imported ({error}); pip install grain",
        name=error.name,
    ) from error
