"""Continue a message that reached its limit of turns or cost, from any endpoint."""

from __future__ import annotations

from typing import Any

from conversations import engine
from conversations.access import admission, budget, maintenance
from conversations.access.limits.admission import admit_message
from conversations.models import Turn
from conversations.models.access_token import AccessToken


def continue_message(turn: Turn, user: Any, token: AccessToken | None = None) -> Turn:
    """Open the turn that continues, under the limits of the token or else of the user.

    Raises `message_bounds.CannotContinue`, TooFast, BudgetExhausted.
    """
    maintenance.check_open()
    if token is None:
        admission.check_user_may_continue(user)
    else:
        if token.tokens_per_minute:
            admission.check_tokens_available(token, 1)
        budget.check_budget(token)
    admit_message(user.pk, token)
    return engine.continue_message(turn, token, user)
