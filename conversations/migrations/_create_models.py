"""A migration operation that creates many models at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import migrations
from django.db.migrations.operations.base import Operation


class CreateModels(Operation):
    """Creates the models one after another, and renders the state of all models once.

    Django renders all related models again after each `CreateModel`: for sixty models
    that takes seconds.
    """

    def __init__(self, creations: Sequence[migrations.CreateModel]) -> None:
        self.creations = creations

    def state_forwards(self, app_label: str, state: Any) -> None:
        if "apps" in vars(state):
            del state.apps  # a cached property, which is computed again when needed
        for creation in self.creations:
            creation.state_forwards(app_label, state)

    def database_forwards(
        self, app_label: str, editor: Any, from_state: Any, to_state: Any
    ) -> None:
        for creation in self.creations:
            creation.database_forwards(app_label, editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, editor: Any, from_state: Any, to_state: Any
    ) -> None:
        for creation in reversed(self.creations):
            creation.database_backwards(app_label, editor, from_state, to_state)

    def describe(self) -> str:
        return f"Create {len(self.creations)} models"
