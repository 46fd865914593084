"""The command `jflow demo`: a cluster of local processes trains a model on handwritten digits."""

from jflow.cli.demo.demo import run_demo as run_demo
