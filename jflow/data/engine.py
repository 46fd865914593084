"""Grain, on which this room is built: imported here, so that its absence has one clear error."""

try:
    import grain as grain
    from grain import experimental as experimental
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "jflow.data is built on Grain, which is not installed here: pip install 'jflow[data]'",
        name=error.name,
    ) from error
