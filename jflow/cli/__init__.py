"""The command `jflow`."""
