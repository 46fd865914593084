"""Closures on workers that may fail: scheduled, coordinated, each result kept."""
