"""Proofs of hosts, sealed for clients whose API has no field for them."""
