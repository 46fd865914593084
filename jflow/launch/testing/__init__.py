"""Tools for tests of code on a cluster, of which `jflow.testing` is the public face."""
