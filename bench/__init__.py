"""Measures jflow beside its peers and raw limits, in one run: `make bench`."""
