from __future__ import annotations

from llm.models.api_key import ApiKey
from llm.models.language_model import LanguageModel, LanguageModelQuerySet
from llm.models.model_call import MAX_COST, ModelCall
from llm.models.provider import Provider, is_disabled

__all__ = [
    "MAX_COST",
    "ApiKey",
    "LanguageModel",
    "LanguageModelQuerySet",
    "ModelCall",
    "Provider",
    "is_disabled",
]
