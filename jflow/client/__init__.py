"""What a user's program is written with: graphs, functions, variables, queues, sessions."""
