"""Backends for the tests: this process, servers in it, servers in processes of their own."""

pytest_plugins = ["jflow.testing.fixtures"]
