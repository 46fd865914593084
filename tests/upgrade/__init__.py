"""Clusters of the release before and of this code, in processes: `make upgrade`."""
