"""How tasks talk: services, messages, and the transports that carry them."""
