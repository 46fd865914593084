"""Optimizers of graph and eager variables: Optax transformations, learning rates, gradients."""
