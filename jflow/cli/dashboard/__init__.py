"""`jflow dashboard`: a live page of a cluster, read-only, for browsers on this machine."""
