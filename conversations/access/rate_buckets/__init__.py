"""Token buckets: in memory, in Redis, in PostgreSQL."""
