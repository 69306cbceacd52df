"""Rows for one page of each kind, as a user of some months has them.

`store_rows` runs inside a server's database and prints the address of each page.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth.models import Group, User
from django.core.files.base import ContentFile
from django.db import transaction
from django.urls import reverse
from django.utils import timezone

from conversations.access.sharing import create_link
from conversations.models import (
    Conversation,
    Delivery,
    Item,
    Memory,
    ToolCall,
    Turn,
    WebhookEndpoint,
)
from conversations.models.access_token import AccessToken
from conversations.models.attachment import Attachment
from conversations.models.branch_choice import BranchChoice
from conversations.models.conversation_import import ConversationImport
from conversations.models.folder import Folder, FolderFile, Tag
from conversations.models.participant import Participant, Role
from conversations.models.preset import Preset
from conversations.models.question import Question
from conversations.models.rating import Rating
from conversations.models.saved_prompt import SavedPrompt
from conversations.models.signed_in_session import SignedInSession
from conversations.models.user_settings import UserSettings
from conversations.search.index import index_pending
from llm.models import ApiKey, LanguageModel, ModelCall, Provider
from llm.wire.items import message, new_id, user_message
from tests.integration.accessibility import texts
from tests.integration.accessibility.policy_rows import store_sign_ins, store_terms
from tests.integration.accessibility.staff_rows import pages_of_staff
from tests.integration.accessibility.texts import NAME
from tests.integration.accessibility.usage_rows import store_usage
from tests.serving import PASSWORD
from tools.models import HttpTool, Tool

Items = Sequence[dict[str, Any]]


def store_rows() -> None:
    """Store everything and print the paths of the pages, by kind of page."""
    with transaction.atomic():  # else the server would run turns that are half stored
        pages = stored_pages()
    for _ in index_pending():
        pass
    print(json.dumps(pages))


def stored_pages() -> dict[str, str]:
    user = User.objects.create_user(NAME, password=PASSWORD, is_staff=False)
    friend = User.objects.create_user("mateo", password=PASSWORD)
    models = _models(user)
    return {
        **_plain_pages(),
        **_kept(user),
        **_answers(user, models),
        **_unfinished(user, models),
        **_branches(user, models),
        **_sharing(user, friend, models),
        **_of_account(user),
        **pages_of_staff(),
        **store_usage(user),
        **store_sign_ins(),
        **store_terms(),
    }


def _models(user: User) -> list[LanguageModel]:
    names = {
        "anthropic": [("claude-sonnet-4-5", "Claude Sonnet 4.5")],
        "openai": [("gpt-5", "GPT-5"), ("gpt-5-mini", "GPT-5 mini")],
    }
    models = []
    for kind, rows in names.items():
        provider = Provider.objects.create(name=kind.title(), kind=kind)
        ApiKey.objects.create(provider=provider, secret="none", label="shared")
        models += [
            LanguageModel.objects.create(
                provider=provider, name=name, label=label, context_window=200_000
            )
            for name, label in rows
        ]
    UserSettings.objects.change(user.pk, default_model=models[0])
    return models


def _plain_pages() -> dict[str, str]:
    return {
        "sign in": "/login/",
        "admin sign in": "/admin/login/",
        "new chat": "/",
        "search": "/?q=interest",
        "search without a result": "/?q=zebra",
        "library": "/library/",
        "filtered library": "/library/?q=interest",
        "archived": "/library/?archived=only",
        "folders": "/folders/",
        "invitations": "/invitations/",
        "links": "/shares/",
        "account": "/account/",
        "keys": "/keys/",
        "memories": "/memories/",
        "offline": "/offline/",
        "settings": "/settings/",
        "personal settings": "/settings/personal/",
        "shortcuts": "/settings/shortcuts/",
        "usage": "/settings/usage/",
        "prompts": "/settings/prompts/",
        "deletion of the account": "/account/delete/",
        "connect": "/connect/",
        "second factors": "/account/second-factor/",
        "app for codes": "/account/second-factor/totp/activate/",
        "new security key": "/account/second-factor/webauthn/add/",
        "e-mail address": "/account/email/",
        "connected providers": "/sso/",
        "confirmation of identity": "/account/confirm/?next=/account/",
        "tokens": "/tokens/",
        "webhooks": "/settings/webhooks/",
        "questions": "/questions/",
        "imports": "/import/",
        "unknown page": "/chat/none/",
    }


def _kept(user: User) -> dict[str, str]:
    folder = Folder.objects.create(
        owner=user,
        name="Orchard association",
        instructions="Answer briefly, for members who are not experts.",
    )
    text = "Members pay by 31 January. The board meets on the first Monday."
    file = FolderFile.objects.create(
        folder=folder, name="statutes.md", text=text, size=len(text)
    )
    Tag.objects.create(owner=user, name="money")
    Preset.objects.create(
        name="letters",
        label="Letters",
        description="Formal letters in the tone of the association.",
    )
    hours = 3
    for title in _OTHER_TITLES:
        row = _conversation(user, title)
        _answer(row, title, [message("assistant", "Done.")])
        at = timezone.now() - timedelta(hours=hours)
        Conversation.objects.filter(pk=row.pk).update(updated_at=at)
        hours += 16
    pages = {"folder": f"/folders/{folder.pk}/"}
    return pages | {
        "deletion of a folder": f"/folders/{folder.pk}/delete/",
        "deletion of a file": f"/folders/{folder.pk}/files/{file.pk}/delete/",
    }


_OTHER_TITLES = [
    "Wording for the complaint about the heating",
    "Names for a small bakery",
    "Regex for German phone numbers",
    "Explain photosynthesis to a seven-year-old",
    "Pandas: group by week and fill gaps",
    "Birthday speech for Aunt Helga",
    "Is my notice period three months?",
    "Sourdough that does not rise",
    "Translate the lease into Spanish",
    "Training plan for ten kilometres",
]


def _conversation(user: User, title: str, **fields: Any) -> Conversation:
    return Conversation.objects.create(
        owner=user, title=title, title_source="person", **fields
    )


def _answer(
    row: Conversation,
    question: str | dict[str, Any],
    output: Items,
    model: LanguageModel | None = None,
    **fields: Any,
) -> Turn:
    """A finished turn, with its cost."""
    said = user_message(question) if isinstance(question, str) else question
    opening = {
        name: fields.pop(name)
        for name in ("parent", "is_first", "comparison")
        if name in fields
    }
    model = model or LanguageModel.objects.get(name="gpt-5-mini")
    turn = row.open_turn([said], language_model=model, **opening).turn
    Item.objects.bulk_create(
        Item.of(turn, n, item, origin=Item.Origin.OUTPUT)
        for n, item in enumerate(output, 1)
    )
    turn.status = Turn.Status.COMPLETED
    turn.started_at = turn.created_at
    turn.finished_at = turn.created_at + timedelta(seconds=7.4)
    for name, value in fields.items():
        setattr(turn, name, value)
    turn.save()
    _charge(turn)
    return turn


def _charge(turn: Turn) -> None:
    model = turn.language_model
    call = ModelCall.objects.create(
        turn_id=turn.pk,
        model=model,
        provider_name=model.provider.name if model else "",
        model_name=model.name if model else "",
        status="completed",
        input_tokens=1840,
        cached_tokens=1024,
        output_tokens=412,
        reasoning_tokens=96,
        cost=Decimal("0.0097"),
        ttft=0.8,
        latency=7.4,
    )
    days = timedelta(days=call.pk * call.pk % 29)
    ModelCall.objects.filter(pk=call.pk).update(created_at=call.created_at - days)


def _answers(user: User, models: list[LanguageModel]) -> dict[str, str]:
    sonnet = models[0]
    savings = _conversation(user, "Savings plan with monthly deposits")
    turn = _answer(
        savings,
        texts.INTEREST_QUESTION,
        [message("assistant", texts.INTEREST)],
        sonnet,
    )
    Rating.objects.create(turn=turn, user=user, value="good", comment="Clear.")
    _answer(
        savings,
        texts.INFLATION_QUESTION,
        [message("assistant", texts.INFLATION)],
        sonnet,
    )
    Conversation.objects.filter(pk=savings.pk).update(pinned_at=timezone.now())
    savings.tags.add(Tag.objects.get(owner=user, name="money"))
    trip = _conversation(user, "Long weekend in Lisbon")
    _answer(trip, texts.TRIP_QUESTION, _trip_items(), models[1])
    code = _conversation(user, "Migration of the customer names")
    _answer(
        code,
        texts.LONG_CODE_QUESTION,
        [message("assistant", texts.LONG_CODE)],
        sonnet,
    )
    diagram = _conversation(user, "How an order goes through the shop")
    _answer(diagram, texts.DIAGRAM_QUESTION, [message("assistant", texts.DIAGRAM)])
    concert = _conversation(user, "Page for the summer concert")
    page = _answer(concert, texts.PAGE_QUESTION, [message("assistant", texts.PAGE)])
    sources = _conversation(user, "Updates of phones in the EU")
    _answer(sources, texts.SOURCES_QUESTION, [_cited()], models[1])
    files = _conversation(user, "Sales by region")
    _answer(files, _with_file(files), [message("assistant", "North leads.")])
    return {
        "formula and table": f"/chat/{savings.pk}/",
        "tools and thoughts": f"/chat/{trip.pk}/",
        "long code": f"/chat/{code.pk}/",
        "diagram": f"/chat/{diagram.pk}/",
        "artifact": f"/chat/{concert.pk}/",
        "artifact alone": f"/artifacts/{page.pk}/0/0/",
        "sources": f"/chat/{sources.pk}/",
        "files": f"/chat/{files.pk}/",
        "renaming": f"/chat/{trip.pk}/rename/",
        "deletion": f"/chat/{trip.pk}/delete/",
        "organising": f"/chat/{trip.pk}/organise/",
        "chat options": f"/chat/{trip.pk}/options/",
        "export of one": f"/chat/{trip.pk}/export/",
        "paper": f"/chat/{trip.pk}/print/",
    }


def _trip_items() -> Items:
    thought = {
        "type": "reasoning",
        "id": new_id("rs"),
        "status": "completed",
        "summary": [{"type": "summary_text", "text": texts.TRIP_THOUGHT}],
        "content": [],
    }
    forecast = [
        {"day": "Friday", "high": 18, "low": 11, "rain": "10 %"},
        {"day": "Saturday", "high": 19, "low": 12, "rain": "0 %"},
        {"day": "Sunday", "high": 17, "low": 11, "rain": "60 %"},
    ]
    return [
        thought,
        *_call("weather", {"city": "Lisbon", "month": "March"}, forecast),
        *_call("find_events", {"city": "Lisbon", "days": 4}, {"found": 0}),
        message("assistant", texts.TRIP),
    ]


def _call(name: str, arguments: Any, output: Any) -> Items:
    call_id = new_id("call")
    return [
        {
            "type": "function_call",
            "id": new_id("fc"),
            "call_id": call_id,
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        },
        {
            "type": "function_call_output",
            "id": new_id("fco"),
            "call_id": call_id,
            "output": json.dumps(output),
            "status": "completed",
        },
    ]


def _cited() -> dict[str, Any]:
    said = message("assistant", texts.SOURCES)
    pages = [
        ("https://eur-lex.europa.eu/eli/reg/2023/1669", "Regulation (EU) 2023/1669"),
        ("https://example.org/labels", "What the new label for phones says"),
    ]
    said["content"][0]["annotations"] = [
        {
            "type": "url_citation",
            "start_index": start,
            "end_index": end,
            "url": url,
            "title": title,
        }
        for (start, end), (url, title) in zip(texts.SOURCE_PLACES, pages, strict=True)
    ]
    return said


def _with_file(row: Conversation) -> dict[str, Any]:
    content = b"Region,Sales\nNorth,1200\nSouth,900\n"
    file = Attachment.objects.create(
        conversation=row,
        name="sales.csv",
        content_type="text/csv",
        size=len(content),
        file=ContentFile(content, "sales.csv"),
    )
    said = user_message("Which region leads?")
    part = {"type": "input_file", "filename": file.name, "file_id": file.pk}
    said["content"].append(part)
    return said


def _unfinished(user: User, models: list[LanguageModel]) -> dict[str, str]:
    """Turns that wait, run, failed or were cut. What runs has a lease that no server
    of a test outlives."""
    tomorrow = timezone.now() + timedelta(days=1)
    temporary = _conversation(user, "Something private", is_temporary=True)
    _answer(temporary, "Not for the list.", [message("assistant", "As you like.")])
    return {
        **_waiting(user, models[0], tomorrow),
        **_running(user, models[0], tomorrow),
        **_broken(user, models),
        "temporary chat": f"/chat/{temporary.pk}/",
    }


def _waiting(user: User, model: LanguageModel, until: datetime) -> dict[str, str]:
    asking = _conversation(user, "Reminder for invoice 2026-0417")
    arguments = {"invoice": "2026-0417", "to": "office@brandt.example", "level": 1}
    # A server that did not ask the question itself asks it again, as the tool says.
    tool = Tool.objects.create(
        name="send_reminder",
        label="Send a reminder",
        description="Sends a reminder for an invoice.",
        kind=Tool.Kind.HTTP,
        approval="always",
    )
    HttpTool.objects.create(
        tool=tool,
        method="POST",
        url="https://billing.example/reminders",
        parameters={
            "type": "object",
            "properties": {
                "invoice": {"type": "string"},
                "to": {"type": "string"},
                "level": {"type": "integer"},
            },
        },
    )
    call, _ = _call("send_reminder", arguments, None)
    turn = _answer(asking, texts.REMINDER_QUESTION, [call], model, status="waiting")
    tool_call = ToolCall.objects.create(
        turn=turn,
        call_id=call["call_id"],
        name=call["name"],
        state=ToolCall.State.AWAITING_APPROVAL,
    )
    question = Question.objects.create(
        tool_call=tool_call,
        kind="approval",
        arguments=arguments,
        expires_at=until,
    )
    return {
        "approval": f"/chat/{asking.pk}/",
        "question": f"/questions/{question.pk}/",
    }


def _running(user: User, model: LanguageModel, until: datetime) -> dict[str, str]:
    running = _conversation(user, "Summary of the reports")
    first = _answer(
        running,
        texts.REPORT_QUESTION,
        [],
        model,
        status="in_progress",
        epoch=1,
        lease_until=until,
        deadline_at=until,
        finished_at=None,
        partial=[message("assistant", texts.REPORT)],
    )
    for text in ("Then translate it into French.", "And make a title for it."):
        first = running.open_turn([user_message(text)], parent=first).turn
    return {"queue": f"/chat/{running.pk}/"}


def _broken(user: User, models: list[LanguageModel]) -> dict[str, str]:
    failed = _conversation(user, "Letter to the landlord")
    error = {
        "code": "rate_limit_exceeded",
        "message": "The provider's rate limit is used up. Try again in a minute.",
    }
    _answer(failed, "Write it more politely.", [], models[1], status="failed")
    Turn.objects.filter(conversation=failed).update(error=error)
    cut = _conversation(user, "Report of the third quarter")
    _answer(
        cut,
        texts.REPORT_QUESTION,
        [message("assistant", texts.REPORT)],
        models[0],
        status="incomplete",
        incomplete_reason="max_output_tokens",
    )
    return {
        "failed answer": f"/chat/{failed.pk}/",
        "cut answer": f"/chat/{cut.pk}/",
    }


def _branches(user: User, models: list[LanguageModel]) -> dict[str, str]:
    row = _conversation(user, "Haiku about the first snow")
    poems = [
        _answer(
            row,
            texts.POEM_QUESTION,
            [message("assistant", poem)],
            models[0],
            is_first=True,
        )
        for poem in texts.POEMS
    ]
    BranchChoice.objects.choose(row.pk, user.pk, poems[1].pk)
    compared = _conversation(user, "Two models about the first snow")
    for model, poem in zip(models, texts.POEMS[:2], strict=False):
        _answer(
            compared,
            texts.POEM_QUESTION,
            [message("assistant", poem)],
            model,
            is_first=True,
            comparison="snow",
        )
    return {
        "versions": f"/chat/{row.pk}/",
        "editing": f"/chat/{row.pk}/turns/{poems[1].pk}/edit/",
        "comparison": f"/chat/{compared.pk}/",
    }


def _sharing(user: User, friend: User, models: list[LanguageModel]) -> dict[str, str]:
    group = Group.objects.create(name="Board")
    user.groups.add(group)
    row = Conversation.objects.get(owner=user, title__startswith="Savings")
    values = {"audience": "public", "kind": "snapshot", "shows_owner": True}
    link = create_link(row, user, values)
    theirs = _conversation(friend, "Programme of the harvest fair")
    _answer(theirs, "Who brings the cider?", [message("assistant", "Nobody yet.")])
    theirs.participants.create(user=user, name=NAME, role=Role.WRITER)
    row.participants.create(user=friend, name="mateo", role=Role.VIEWER)
    read = _conversation(friend, "Minutes of the board")
    _answer(read, "Shorten them.", [message("assistant", "Here they are.")])
    read.participants.create(
        user=user, name=NAME, role=Role.VIEWER, accepted_at=timezone.now()
    )
    assert Participant.objects.open_invitations(user).exists()
    return {
        "sharing": f"/chat/{row.pk}/share/",
        "people": f"/chat/{row.pk}/people/",
        "shared page": f"/shared/{link.token.reveal()}/",
        "closed link": "/shared/none/",
        "read only": f"/chat/{read.pk}/",
    }


def _of_account(user: User) -> dict[str, str]:
    for text in (
        "Lives in Freiburg with her daughter and two cats.",
        "Is treasurer of an orchard association.",
        "Prefers short answers with an example.",
    ):
        memory = Memory.objects.create(user=user, text=text)
    for _ in range(2):  # rows of equal names
        token = AccessToken.issue(user, "Script for the newsletter", scopes=["chat"])[0]
        endpoint = WebhookEndpoint(
            owner=user,
            name="Newsletter script",
            url="https://hooks.example.org/parley",
            events=["response.completed", "parley.question.opened"],
            last_error="The receiver answered 503.",
        )
        endpoint.renew_secret()
        SignedInSession.objects.create(
            user=user, session_key=new_id("key"), last_used_at=timezone.now()
        )
    Delivery.objects.create(
        endpoint=endpoint,
        type="response.completed",
        data={"id": "resp_1", "status": "completed"},
        state="failed",
        attempts=14,
        last_status=503,
        last_error=endpoint.last_error,
    )
    prompt = SavedPrompt.objects.create(
        owner=user,
        name="polite",
        title="More polite",
        text="Write this more politely, in {{language}}: {{text}}",
    )
    done = ConversationImport.objects.create(
        owner=user,
        name="chatgpt-export.zip",
        size=4_120_000,
        format="chatgpt",
        state="completed",
        imported=214,
        repeated=3,
        skipped=1,
        reasons=[{"title": "Sketch of the garden", "reason": "It has no messages."}],
        finished_at=timezone.now(),
    )
    return {
        "deletion of a memory": f"/memories/{memory.pk}/delete/",
        "deletion of a prompt": f"/settings/prompts/{prompt.pk}/delete/",
        "token": reverse("token-settings", args=[token.pk]),
        "sign-ins": reverse("sign-ins"),
        "prompt": f"/settings/prompts/{prompt.pk}/",
        "webhook": f"/settings/webhooks/{endpoint.pk}/",
        "use of a prompt": f"/settings/prompts/{prompt.pk}/use/",
        "import": f"/import/{done.pk}/",
    }
