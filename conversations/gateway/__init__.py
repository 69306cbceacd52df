"""ASGI endpoints below `/v1` that speak OpenAI's and Anthropic's APIs.

They serve every configured provider and the server's own tools.
"""
