"""`AlterTexts`: a migration operation for changed help texts, labels and messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db.migrations.operations import SeparateDatabaseAndState
from django.db.migrations.operations.base import Operation


class AlterTexts(SeparateDatabaseAndState):
    """`AlterField`s of which the database stores nothing: they change only the state.

    While the state has rendered models, Django renders a model and all that is related
    to it again for each `AlterField`: 119 of them took 4 s of a first start. Models are
    rendered once afterwards, when a later migration needs them.
    """

    def __init__(self, state_operations: Sequence[Operation]) -> None:
        super().__init__(state_operations=state_operations)

    def state_forwards(self, app_label: str, state: Any) -> None:
        if "apps" in vars(state):  # a cached property
            del state.apps
        super().state_forwards(app_label, state)

    def deconstruct(self) -> tuple[str, Sequence[Any], dict[str, Any]]:
        return type(self).__name__, [self.state_operations], {}
