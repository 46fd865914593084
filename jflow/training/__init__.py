"""Programs that train: optimizers, input queues, checkpoints, monitored sessions, coordinators."""
