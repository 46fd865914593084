"""Checkpoints and graphs in files: what to save, where it is, and which are kept."""
