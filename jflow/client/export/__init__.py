"""Graphs and functions in files, which other processes can load, run and train."""
