"""Mathematical functions under TensorFlow's names and with its arguments; JAX computes them."""
