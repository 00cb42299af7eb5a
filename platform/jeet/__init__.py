"""Jeet runs JavaScript functions over partitioned event streams, exactly once, on Postgres."""
