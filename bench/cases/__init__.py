"""One module a process: each prints its figures as lines of JSON, name to value."""
