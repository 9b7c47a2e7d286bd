"""What ./x does, one module a verb. Nothing here needs more than Python 3.11's standard library."""
