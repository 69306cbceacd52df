"""Why an answer does not pass a check, in the reader's language.

The reasons are stored in English.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop

from llm.error_texts.english_texts import EnglishTexts

BUDGET_SPENT = gettext_noop("The budget is spent.")
NO_VERDICT = gettext_noop("The judge gave no verdict.")
OTHER_WORDS = gettext_noop("The judge gave no verdict. It wrote: %(words)s")
NOT_FOUND = gettext_noop("The regular expression is not found.")
LACKS = gettext_noop("It lacks: %(words)s")
NO_JSON = gettext_noop("It is not JSON.")
_TEXTS = EnglishTexts(
    (BUDGET_SPENT, NO_VERDICT, OTHER_WORDS, NOT_FOUND, LACKS, NO_JSON)
)


def translate_check_reason(reason: str) -> str:
    """The reason as it is if a judge or a validator worded it."""
    return _TEXTS.translate(reason) or reason
