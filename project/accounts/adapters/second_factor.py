"""How django-allauth stores second factors: secrets are encrypted with the key ring.

Source: https://docs.allauth.org/en/latest/mfa/adapter.html
"""

from __future__ import annotations

from allauth.mfa.adapter import DefaultMFAAdapter

from llm.db.encrypted_field import decrypt, encrypt


class SecondFactorAdapter(DefaultMFAAdapter):
    def encrypt(self, text: str) -> str:
        return encrypt(text)

    def decrypt(self, encrypted_text: str) -> str:
        return decrypt(encrypted_text)
