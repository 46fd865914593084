"""What every other wing stands on: names, values, deadlines, stacks, logs, drivers, and no step."""
