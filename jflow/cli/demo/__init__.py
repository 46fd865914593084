"""The command `jflow demo`: a cluster of local processes trains a model on handwritten digits."""
