"""Tests of the coordinator of closures."""
