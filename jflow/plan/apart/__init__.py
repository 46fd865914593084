"""Processes of this machine that do work which may end them, one piece of it after the other."""
