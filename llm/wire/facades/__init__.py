"""The other side of the wire: what a provider's client has asked, in our words.

A module reads the body of one API's requests into a `Request`: what people and tools
said by rules of its own, what the assistant said by the decoder of its codec, so that
proofs come out as they do of an answer. With an `issuer` they may go back to it;
without one they are left out. Fields that we have no word for are in `extra`. A body
is taken to have the shape that its API documents; BadRequest is for what we cannot say.
"""
