"""Tools for testing code on a cluster; public as `jflow.testing`."""
