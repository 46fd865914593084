"""The foundation of all other wings: names, values, deadlines, context stacks, logs and drivers."""
