"""How a graph and a step are drawn: placed graphs as pictures, as data, in other tools' formats."""
