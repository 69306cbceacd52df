"""Several processes for the gateway's stateless traffic beside one with the engine."""
