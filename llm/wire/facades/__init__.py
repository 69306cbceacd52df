"""Readers and writers of other APIs: client requests to `Request`, events to answers.

The reader of an API converts a request body into a `Request`: messages of users and
tools by its own rules, messages of the assistant with the decoder of its codec, so that
proofs come out as they do from an answer. With an `issuer` they may be sent back to it;
without one they are dropped. Fields that `Request` does not have are in `extra`. A body
must have the shape that its API documents; BadRequest is raised for valid requests that
`Request` cannot express.
"""
