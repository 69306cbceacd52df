"""Providers that refuse what the real ones refuse, and answer what they are asked.

Each module is one API: `RULES` are what it refuses and in which words, `answer` is a
pure function from a body to a `Refusal` or the bytes of a stream, `said` what a body
repeats of earlier answers. Every proof that a fake issues names its issuer and what it
vouches for (`rules.seal`), so it knows its own, and knows when they were changed.
"""
