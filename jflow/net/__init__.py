"""Communication between tasks: services, messages, and the transports that carry them."""
