"""What outlives a step: resources, records in files, checkpoints, moves, effects, claims."""
