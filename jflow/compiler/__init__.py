"""How a step is made of a graph: placed, cut, lowered. Pure, and without state."""
