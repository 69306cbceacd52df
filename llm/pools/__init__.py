"""Model pools: one name for several models, chosen by weight or load."""
