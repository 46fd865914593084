"""A day of one cluster with three users, faults and an operator: `make gameday`."""
