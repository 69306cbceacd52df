"""The rows of the app: providers, keys, models and model calls."""

from __future__ import annotations

from llm.models.api_key import ApiKey, OwnKey
from llm.models.cached_answer import CachedAnswer
from llm.models.language_model import LanguageModel, LanguageModelQuerySet
from llm.models.model_call import ModelCall
from llm.models.model_exchange import ModelExchange
from llm.models.model_pool import ModelPool, PoolMember
from llm.models.model_price import ModelPrice
from llm.models.model_probe import ModelProbe
from llm.models.prompt_test import PromptTest
from llm.models.provider import Provider, is_disabled
from llm.models.usage_sum import FirstTokenCount, UsageSum

__all__ = [
    "ApiKey",
    "CachedAnswer",
    "FirstTokenCount",
    "LanguageModel",
    "LanguageModelQuerySet",
    "ModelCall",
    "ModelExchange",
    "ModelPool",
    "ModelPrice",
    "ModelProbe",
    "OwnKey",
    "PoolMember",
    "PromptTest",
    "Provider",
    "UsageSum",
    "is_disabled",
]
