"""Errors that refer people to the staff, rewritten as instructions for the staff."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from llm.error_texts.english_texts import EnglishTexts

_REFERRAL = "; ask the staff to "
#: Without the referral.
INSTRUCTIONS = (
    gettext_noop("The model %(model)s has an invalid option; correct it: %(problem)s"),
    gettext_noop(
        "The provider %(provider)s does not support the wire format %(format)s; correct"
        " it."
    ),
    gettext_noop("The key %(key)s of the provider %(provider)s is empty; enter it."),
    gettext_noop(
        "The key %(key)s of the provider %(provider)s cannot be read where it is"
        " stored; look at it."
    ),
    gettext_noop(
        "The key %(key)s of the provider %(provider)s was entered for a different"
        " address of the provider and is not sent; enter it again."
    ),
    gettext_noop(
        "The key %(key)s of the provider %(provider)s cannot be decrypted; restore"
        " ENCRYPTION_KEYS or enter it again."
    ),
    gettext_noop(
        "The secret headers of the provider %(provider)s were entered for a different"
        " address and are not sent; enter them again."
    ),
    gettext_noop(
        "The secret headers of the provider %(provider)s cannot be decrypted; restore"
        " ENCRYPTION_KEYS or enter them again."
    ),
    gettext_noop(
        "The provider %(provider)s has no active key that can be sent to its address;"
        " enter one again."
    ),
    gettext_noop("The provider %(provider)s has no active key; add one."),
    gettext_noop(
        "The provider %(provider)s refused the model for all its keys; check the keys'"
        " permissions."
    ),
    gettext_noop(
        "Entra ID refused the client; check the tenant, client id and secret."
    ),
    gettext_noop("Google refused the service account; check its key."),
    gettext_noop("No model is available; set one up."),
    gettext_noop("The key is not the JSON file of a service account; enter it again."),
    gettext_noop("The token endpoint returned no token; correct its address."),
    gettext_noop(
        "The provider uses an unsupported content encoding (%(name)s); correct it."
    ),
)
#: Errors, and parts of sentences, that refer to nobody.
OTHERS = (
    gettext_noop("the model is switched off"),
    gettext_noop("it was retired on %(day)s"),
    gettext_noop("its provider %(provider)s is switched off"),
    gettext_noop("its provider's kind %(kind)s is unknown"),
    gettext_noop("The provider's kind %(kind)s is unknown."),
    gettext_noop("%(variable)s switches its provider off"),
    gettext_noop(
        "All keys of the provider %(provider)s are at their rate limits; try again"
        " later."
    ),
    gettext_noop(
        "The API key contains a character that is not allowed; enter it again."
    ),
)
_TEXTS = EnglishTexts((*INSTRUCTIONS, *OTHERS))


def instruct(text: str, *, is_cut: bool = False) -> str:
    """`text`, which may refer its reader to the staff, as an instruction to them. A
    text that is cut off is completed if it is a known one."""
    instruction = text.replace(_REFERRAL, "; ")
    if shown := _TEXTS.translate(instruction):
        return shown
    return (is_cut and _TEXTS.translate_cut(_end_referral(instruction))) or instruction


def _end_referral(text: str) -> str:
    """`text` without the part of a referral at its end."""
    for left in range(len(_REFERRAL) - 1, 1, -1):
        if text.endswith(_REFERRAL[:left]):
            return f"{text[:-left]}; "
    return text
