"""The compiler: places, partitions and lowers the graph of a step; pure functions without state."""
