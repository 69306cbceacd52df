"""Providers that refuse what the real ones refuse, and answer other requests.

Each module is one API: `RULES` are its refusals and their messages, `answer` is a pure
function from a body to a `Refusal` or the bytes of a stream, `assistant_content` what a
body repeats of earlier answers. Every proof that a fake issues names its issuer and
what it
vouches for (`rules.seal`), so it knows its own, and knows when they were changed.
"""
