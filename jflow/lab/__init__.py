"""The placement lab: families of graphs, and the comparison of strategies on them."""
