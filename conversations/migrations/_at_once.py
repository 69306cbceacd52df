"""A migration operation that consists of several others."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from django.db.migrations.operations.base import Operation


class AtOnce(Operation):
    """Does the operations one after another, and renders the state of all models once.

    Django renders all related models again after each operation: for sixty models that
    takes seconds. Each operation sees the tables of before the first one and those of
    after the last one: it may create a model, remove or add a constraint with a
    condition, and add a field that may be null, because SQLite copies the table for
    none of these. One field for which it does may come first of the table's operations.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.reversible = all(operation.reversible for operation in operations)

    def state_forwards(self, app_label: str, state: Any) -> None:
        with suppress(AttributeError):  # it was not computed yet
            del state.apps  # a cached property, which is computed again when needed
        for operation in self.operations:
            operation.state_forwards(app_label, state)

    def database_forwards(
        self, app_label: str, editor: Any, from_state: Any, to_state: Any
    ) -> None:
        for operation in self.operations:
            operation.database_forwards(app_label, editor, from_state, to_state)

    def database_backwards(
        self, app_label: str, editor: Any, from_state: Any, to_state: Any
    ) -> None:
        for operation in reversed(self.operations):
            operation.database_backwards(app_label, editor, from_state, to_state)

    def describe(self) -> str:
        return "; ".join(operation.describe() for operation in self.operations)
