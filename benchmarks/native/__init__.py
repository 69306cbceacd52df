"""A load client and a provider in C, and a check of the figures that they measure."""
