"""Benchmarks: ./x bench NAME runs them."""
