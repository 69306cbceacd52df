"""The names of models in menus: each tells its model from the others."""

from __future__ import annotations

import pytest

from conversations.templatetags.chat import model_label
from llm.models import LanguageModel, Provider


@pytest.mark.parametrize(
    ("kind", "fields", "label"),
    [
        ("demo", {"name": "demo"}, "Demo (no AI)"),
        ("demo", {"name": "demo-slow"}, "Demo (no AI): demo-slow"),
        ("demo", {"name": "demo-fast", "label": "Quick"}, "Demo (no AI): Quick"),
        ("openai", {"name": "m-1", "label": "Orchard"}, "Orchard"),
    ],
)
def test_models_of_one_provider_have_labels_of_their_own(kind, fields, label):
    assert model_label(LanguageModel(provider=Provider(kind=kind), **fields)) == label
