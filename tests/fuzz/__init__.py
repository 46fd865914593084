"""A fuzzer: mutated programs, plans, frames and graph files; `python -m tests.fuzz`."""
