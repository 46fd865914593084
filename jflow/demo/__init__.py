"""The tour: a model trained across processes on handwritten digits."""

from jflow.demo.demo import run_demo as run_demo
