"""Actions on several turns: stop, queue again, release from their runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from conversations.admin.conversation_content import EDIT, ConversationContentAdmin
from conversations.admin.engine import ACTIONS, CHANGE, TurnAction, may_act
from conversations.models import Turn
from llm.admin import ask_about_rows, is_confirmed, report_rows

MAX_CHANGED = 200  # turns of one action


def may_stop(request: HttpRequest) -> bool:
    return bool(request.user.has_perm(EDIT) or request.user.has_perm(CHANGE))


class TurnActionsMixin(ConversationContentAdmin):
    def has_stop_permission(self, request: HttpRequest) -> bool:
        return may_stop(request)

    def has_act_permission(self, request: HttpRequest) -> bool:
        return may_act(request)

    @admin.action(
        description=gettext_lazy("Stop the selected turns…"), permissions=["stop"]
    )
    def stop_turns(
        self, request: HttpRequest, turns: QuerySet[Turn]
    ) -> HttpResponse | None:
        def describe(count: int) -> str:
            return ngettext(
                "%(count)d turn is being stopped",
                "%(count)d turns are being stopped",
                count,
            )

        title = _("Stop these turns?")
        return self._act_on(request, turns, ACTIONS["cancel"], title, describe)

    @admin.action(
        description=gettext_lazy("Queue the selected turns again…"),
        permissions=["act"],
    )
    def retry_turns(
        self, request: HttpRequest, turns: QuerySet[Turn]
    ) -> HttpResponse | None:
        def describe(count: int) -> str:
            return ngettext(
                "%(count)d turn is queued again",
                "%(count)d turns are queued again",
                count,
            )

        title = _("Queue these turns again?")
        return self._act_on(request, turns, ACTIONS["retry"], title, describe)

    @admin.action(
        description=gettext_lazy("Release the selected turns from their runs…"),
        permissions=["act"],
    )
    def release_turns(
        self, request: HttpRequest, turns: QuerySet[Turn]
    ) -> HttpResponse | None:
        def describe(count: int) -> str:
            return ngettext(
                "%(count)d turn was released", "%(count)d turns were released", count
            )

        title = _("Release these turns from their runs?")
        return self._act_on(request, turns, ACTIONS["release"], title, describe)

    def _act_on(
        self,
        request: HttpRequest,
        turns: QuerySet[Turn],
        action: TurnAction,
        title: str,
        describe: Any,
    ) -> HttpResponse | None:
        """`describe` makes the first half of the report from the number of turns."""
        if not is_confirmed(request):
            return ask_about_rows(
                self, request, turns, title=title, effect=action.warning
            )
        chosen = list(turns[: MAX_CHANGED + 1])
        if len(chosen) > MAX_CHANGED:
            text = _("Choose at most %(count)d turns.") % {"count": MAX_CHANGED}
            self.message_user(request, text, messages.ERROR)
            return None
        left_out: Counter[str] = Counter()
        count = 0
        for turn in chosen:
            with transaction.atomic():
                if is_done := action.do(turn):
                    self.log_change(request, turn, action.log)
            if is_done:
                count += 1
            else:
                over = turn.is_finished
                left_out[_("over already") if over else _("not running")] += 1
        done = describe(count) % {"count": count}
        report_rows(self, request, done, left_out, any_done=bool(count))
        return None
