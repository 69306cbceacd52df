"""Models of what people may use of the models in a period."""
