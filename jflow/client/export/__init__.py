"""Graphs and functions in files, to be loaded, run and trained in other processes."""
