"""Tests of the records of plans, their text form and their verifier."""
