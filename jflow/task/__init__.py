"""How a step is run: by a worker, for a master, in a server."""
