"""What the users of the cluster run; each is started with the token of one of them."""
