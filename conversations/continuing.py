"""Continue a message that reached its limit of turns or cost, from any endpoint."""

from __future__ import annotations

from typing import Any

from conversations import admission, engine, ledger
from conversations.models import Turn
from conversations.tokens import AccessToken


def continue_message(turn: Turn, user: Any, token: AccessToken | None = None) -> Turn:
    """Open the turn that continues, under the limits of the token or else of the user.

    Raises `message_bounds.NothingToContinue`, TooFast, BudgetExhausted.
    """
    if token is None:
        admission.look_for_more(user)
    else:
        if token.tokens_per_minute:
            admission.look_for_tokens(token, 1)
        ledger.check(token)
    return engine.continue_message(turn, token)
