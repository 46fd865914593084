"""Running steps: the execution of plans, and the workers, masters and servers of tasks."""
