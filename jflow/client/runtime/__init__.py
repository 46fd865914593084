"""Backends, which run compiled steps in this process or on a cluster."""
