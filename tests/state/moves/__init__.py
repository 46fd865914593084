"""Tests of moves of state."""
