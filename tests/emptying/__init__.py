"""An app whose command `flush` empties the database between tests more quickly."""
