"""Texts that try to run a script, and the rows in which a page may meet them.

Each text calls `hit()`. They are the vectors of public lists, combined by rule: OWASP's
XSS Filter Evasion Cheat Sheet (elements, schemes, obfuscation) and PortSwigger's XSS
cheat sheet (events, ways out of a context). Markdown forms are our own.
Sources: https://cheatsheetseries.owasp.org/cheatsheets/XSS_Filter_Evasion_Cheat_Sheet.html,
https://portswigger.net/web-security/cross-site-scripting/cheat-sheet

A part of Parley that shows foreign text adds a place to `PLACES`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import Any

from django.contrib.auth.models import User
from django.core.files.base import ContentFile

from conversations.access.sharing import create_link
from conversations.models import (
    AccessToken,
    Conversation,
    Folder,
    Item,
    Memory,
    SavedPrompt,
    Tag,
    Turn,
)
from conversations.models.preset import Preset
from conversations.pages.reading.link_marks import MIN_LINES
from conversations.search.index import index_pending
from conversations.transfer.imports import accept, run_import
from llm.models import LanguageModel, Provider
from llm.wire.items import message, new_id, user_message

#: What may stand before an element, to leave the context that it is written into.
_WAYS_OUT = (
    *("", '">', "'>", "</textarea>", "</title></style></script>", "-->", "]]>"),
    *("<!--><", "`>", "</code></pre>"),
)
_ELEMENTS = (
    "<script>hit()</script>",
    "<script src=data:text/javascript,hit()></script>",
    "<img src=x onerror=hit()>",
    "<IMG/SRC=x\n/ONERROR\t=\n'&#104;it()'>",
    "<svg onload=hit()>",
    "<svg><animate onbegin=hit() attributeName=x dur=1s>",
    "<svg><a xlink:href=javascript:hit()><text x=9 y=9>x</text></a>",
    "<math><maction actiontype=statusline xlink:href=javascript:hit()>x</math>",
    "<iframe srcdoc='<script>parent.hit()</script>'></iframe>",
    "<iframe src=javascript:parent.hit()></iframe>",
    "<object data=javascript:hit()></object><embed src=javascript:hit()>",
    "<details open ontoggle=hit()>x</details>",
    "<input autofocus onfocus=hit()>",
    "<video><source onerror=hit()></video>",
    "<marquee onstart=hit()>x</marquee>",
    "<style>@keyframes k{}</style><b style='animation:k 1s' onanimationstart=hit()>",
    "<style onload=hit()></style><link rel=stylesheet href=x onerror=hit()>",
    "<form action=javascript:hit()><button>x</button></form>",
    "<button formaction=javascript:hit() form=composer>x</button>",
    "<a href=javascript:hit()>x</a><base href=javascript:hit()//>",
    "<meta http-equiv=refresh content='0;url=javascript:hit()'>",
    "<noscript><p title='</noscript><img src=x onerror=hit()>'>",
)
_ADDRESSES = (
    *("javascript:hit()", "JaVaScRiPt:hit()", "java\tscript:hit()"),
    *("&#106;avascript:hit()", "javascript&colon;hit()", "javascript&#58;hit()"),
    *("javascript%3Ahit()", "javascript://%0Ahit()", "\x01javascript:hit()"),
    *(
        "data:text/html,<script>hit()</script>",
        "vbscript:hit()",
        '//x/" onclick=hit() ',
    ),
    *("https://a.test/'onmouseover='hit()", 'https://a.test/"><svg onload=hit()>'),
    "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' onload='hit()'/>",
)
_LINKS = (
    *("[x]({})", "[x](<{}>)", "![x]({})", "<{}>", "{}", "[x][1]\n\n[1]: {}"),
    *('[x](https://a.test "{}")', "[^1]\n\n[^1]: [x]({})"),
)
_OTHERS = (
    *('" onmouseover=hit() x="', "' autofocus onfocus=hit() '", "` onclick=hit() `"),
    *("{{constructor.constructor('hit()')()}}", "${{hit()}}", "{% hit() %}"),
    "```html\n<img src=x onerror=hit()>\n```",
    "```svg\n<svg xmlns='http://www.w3.org/2000/svg' onload='hit()'></svg>\n```",
    '```"><img src=x onerror=hit()>\nx\n```',
    "`<img src=x onerror=hit()>`",
    '```mermaid\ngraph TD; A["<img src=x onerror=hit()>"]\n```',
    '```mermaid\ngraph TD; A; click A "javascript:hit()"\n```',
    "| <img src=x onerror=hit()> |\n|---|\n| <svg onload=hit()> |",
    "# <img src=x onerror=hit()>\n\n> <svg onload=hit()>\n\n* <svg onload=hit()>",
    r"$\href{javascript:hit()}{x}$ $\unicode{<img src=x onerror=hit()>}$",
    "$$\\text{</math><img src=x onerror=hit()>}$$",
    "<scr<script>ipt>hit()</scr</script>ipt>",
    "<<script>hit();//<</script>",
    "\u202e<img src=x onerror=hit()>",
    "＜img src=x onerror=hit()＞",
    '{"a": "</script><script>hit()</script>"}',
    "javascript:/*--></title></style></textarea></script><svg/onload='+/\"/+/onmouseover"
    "=1/+/[*/[]/+hit()//'>",
)
PAYLOADS: Sequence[str] = tuple(
    dict.fromkeys(
        [
            *(way + element for way, element in product(_WAYS_OUT, _ELEMENTS)),
            *(link.format(url) for link, url in product(_LINKS, _ADDRESSES)),
            *_OTHERS,
        ]
    )
)

_TURN_SIZE = 60  # payloads in a turn

Store = Callable[[User, Sequence[str]], Iterable[str]]


def store_rows() -> None:
    """Store the payloads in each place and print the pages that show them."""
    user = User.objects.get(username="admin")
    pages = {name: list(store(user, PAYLOADS)) for name, store in PLACES.items()}
    for _ in index_pending():
        pass
    print(json.dumps(pages))


# Places. Each stores the texts and returns the paths of pages that show them.


def _in_answers(user: User, texts: Sequence[str]) -> Iterable[str]:
    def said(text: str) -> list[dict[str, Any]]:
        return [message("assistant", text)]

    return _conversation(user, "answers", texts, said)


def _in_questions(user: User, texts: Sequence[str]) -> Iterable[str]:
    row = Conversation.objects.create(owner=user, title="questions")
    parent = None
    for start in range(0, len(texts), _TURN_SIZE):
        part = texts[start : start + _TURN_SIZE]
        turn = row.open_turn([user_message(text) for text in part], parent=parent).turn
        parent = _end(turn)
    return [f"/chat/{row.pk}/"]


def _in_reasoning(user: User, texts: Sequence[str]) -> Iterable[str]:
    def thought(text: str) -> list[dict[str, Any]]:
        return [
            {
                "type": "reasoning",
                "id": new_id("rs"),
                "status": "completed",
                "summary": [{"type": "summary_text", "text": text}],
                "content": [{"type": "reasoning_text", "text": text}],
            }
        ]

    return _conversation(user, "reasoning", texts, thought)


def _in_calls(user: User, texts: Sequence[str]) -> Iterable[str]:
    """The name, the arguments and the output of a call."""

    def called(text: str) -> list[dict[str, Any]]:
        call_id = new_id("call")
        return [
            {
                "type": "function_call",
                "id": new_id("fc"),
                "call_id": call_id,
                "name": text,
                "arguments": json.dumps({text: text}),
                "status": "completed",
            },
            {
                "type": "function_call_output",
                "id": new_id("fco"),
                "call_id": call_id,
                "output": text,
                "status": "completed",
            },
        ]

    return _conversation(user, "calls of tools", texts, called)


def _in_citations(user: User, texts: Sequence[str]) -> Iterable[str]:
    """The addresses and titles of an answer's sources."""

    def cited(text: str) -> list[dict[str, Any]]:
        said = message("assistant", "As they say.")
        places = [
            {"type": "url_citation", "start_index": 0, "end_index": 2}
            | {"url": url, "title": text}
            for url in (text, "https://a.test/")
        ]
        said["content"][0]["annotations"] = places
        return [said]

    return _conversation(user, "citations", texts, cited)


def _in_file_names(user: User, texts: Sequence[str]) -> Iterable[str]:
    row = Conversation.objects.create(owner=user, title="files")
    parent = None
    for start in range(0, len(texts), _TURN_SIZE):
        said = user_message("Read these.")
        said["content"] += [
            {"type": "input_file", "filename": text, "file_id": f"file_{start}"}
            for text in texts[start : start + _TURN_SIZE]
        ]
        parent = _end(row.open_turn([said], parent=parent).turn)
    return [f"/chat/{row.pk}/"]


def _in_summaries(user: User, texts: Sequence[str]) -> Iterable[str]:
    def summary(text: str) -> list[dict[str, Any]]:
        return [
            {
                "type": "compaction",
                "id": new_id("cmp"),
                "status": "completed",
                "summary": [{"type": "summary_text", "text": text}],
                "parley:policy": 0,
                "parley:messages": 1,
                "parley:through": {"turn": "resp_none", "position": 0},
            }
        ]

    return _conversation(user, "summaries", texts, summary)


def _in_titles(user: User, texts: Sequence[str]) -> Iterable[str]:
    """The newest rows of the sidebar; the search below finds the others too."""
    Conversation.objects.bulk_create(
        Conversation(owner=user, title=text[:200]) for text in texts
    )
    return ["/", "/library/"]


def _in_search_results(user: User, texts: Sequence[str]) -> Iterable[str]:
    return [f"/?q=hit&from={start}" for start in range(0, 200, 20)]


def _in_memories(user: User, texts: Sequence[str]) -> Iterable[str]:
    Memory.objects.bulk_create(Memory(user=user, text=text) for text in texts)
    return ["/memories/"]


def _in_presets(user: User, texts: Sequence[str]) -> Iterable[str]:
    Preset.objects.bulk_create(
        Preset(name=f"p-{n}", label=text[:60], description=text[:200])
        for n, text in enumerate(texts)
    )
    return ["/"]


def _on_shared_pages(user: User, texts: Sequence[str]) -> Iterable[str]:
    """The title, the messages, the thoughts and the calls behind a public link."""
    shown = ("shows_owner", "shows_reasoning", "shows_arguments", "shows_results")
    values = {"audience": "public", "kind": "snapshot"} | dict.fromkeys(shown, True)
    for title in ("questions", "answers", "reasoning", "calls of tools"):
        row = Conversation.objects.get(owner=user, title=title)
        link = create_link(row, user, values)
        link.title = texts[12][:200]
        link.save()
        yield f"/shared/{link.token.reveal()}/"
    yield "/shares/"


def _in_artifacts(user: User, texts: Sequence[str]) -> Iterable[str]:
    """Their titles and source; what they run themselves stays in the sandbox."""
    row = Conversation.objects.create(owner=user, title="artifacts")
    blank = "\n" * MIN_LINES
    fences = [
        f'~~~html title="{_one_line(text)}"\n{text}{blank}\n~~~'
        for text in texts[:220:20]
    ]
    turn = row.open_turn([user_message("Draw.")]).turn
    said = message("assistant", "\n\n".join(fences))
    Item.of(turn, 1, said, origin=Item.Origin.OUTPUT).save()
    _end(turn)
    for number in range(len(fences)):
        yield f"/artifacts/{turn.pk}/0/{number}/"
        yield f"/artifacts/{turn.pk}/0/{number}/?view=code"


def _in_imports(user: User, texts: Sequence[str]) -> Iterable[str]:
    """Titles, texts and model names that another program exported."""
    conversations = [
        {
            "uuid": f"import-{number}",
            "name": text,
            "created_at": "2026-01-01T00:00:00Z",
            "updated_at": "2026-01-01T00:00:00Z",
            "chat_messages": [
                {
                    "uuid": f"import-{number}-{sender}",
                    "sender": sender,
                    "text": text,
                    "content": [{"type": "text", "text": text}],
                    "created_at": "2026-01-01T00:00:00Z",
                    "attachments": [{"file_name": text, "extracted_content": text}],
                }
                for sender in ("human", "assistant")
            ],
        }
        for number, text in enumerate(texts[::12])
    ]
    file = ContentFile(json.dumps(conversations).encode(), name="hit() <b>.json")
    known = list(Conversation.objects.values_list("pk", flat=True))
    row = accept(user, file)
    assert run_import(row.pk)
    row.refresh_from_db()
    assert row.imported == len(conversations), row.reasons
    yield f"/import/{row.pk}/"
    for chat in Conversation.objects.filter(owner=user).exclude(pk__in=known):
        yield f"/chat/{chat.pk}/"


def _on_paper(user: User, _texts: Sequence[str]) -> Iterable[str]:
    rows = Conversation.objects.filter(owner=user)
    for title in ("questions", "answers", "calls of tools", "citations"):
        yield f"/chat/{rows.get(title=title).pk}/print/"


def _in_settings(user: User, texts: Sequence[str]) -> Iterable[str]:
    """Names that a person has given; of a group's prompt, another person."""
    SavedPrompt.objects.bulk_create(
        SavedPrompt(owner=user, name=f"p{n}", title=text[:100], text=text)
        for n, text in enumerate(texts[:200])
    )
    Tag.objects.bulk_create(
        Tag(owner=user, name=f"{n}{text}"[:50]) for n, text in enumerate(texts[:150])
    )
    Folder.objects.bulk_create(
        Folder(owner=user, name=f"{n}{text}"[:100], instructions=text)
        for n, text in enumerate(texts[:150])
    )
    for text in texts[:20]:
        AccessToken.issue(user, text[:100], scopes=["chat"])
    folder = Folder.objects.filter(owner=user).earliest("pk")
    prompt = SavedPrompt.objects.filter(owner=user).earliest("pk")
    yield from ("/settings/prompts/", f"/settings/prompts/{prompt.pk}/")
    yield from (f"/settings/prompts/{prompt.pk}/use/", "/library/")
    yield from (f"/?folder={folder.pk}", "/tokens/")


def _in_models(_user: User, texts: Sequence[str]) -> Iterable[str]:
    """Names that a host lists, and what staff write of them."""
    host = Provider.objects.create(name=texts[5][:100], kind="openai_compatible")
    LanguageModel.objects.bulk_create(
        LanguageModel(
            provider=host, name=f"{n}{text}"[:200], label=text[:100], description=text
        )
        for n, text in enumerate(text[:200] for text in texts[::4])
    )
    return ["/", "/settings/"]


PLACES: dict[str, Store] = {
    "answers": _in_answers,
    "questions": _in_questions,
    "reasoning": _in_reasoning,
    "calls of tools": _in_calls,
    "citations": _in_citations,
    "names of files": _in_file_names,
    "summaries": _in_summaries,
    "titles": _in_titles,
    "search results": _in_search_results,
    "memories": _in_memories,
    "presets": _in_presets,
    "shared pages": _on_shared_pages,
    "artifacts": _in_artifacts,
    "imported chats": _in_imports,
    "pages to print": _on_paper,
    "names in settings": _in_settings,
    "models": _in_models,
}


def _conversation(
    user: User,
    title: str,
    texts: Sequence[str],
    items_of: Callable[[str], list[dict[str, Any]]],
) -> Iterable[str]:
    """The page of a conversation whose answers have these items."""
    row = Conversation.objects.create(owner=user, title=title)
    parent = None
    for start in range(0, len(texts), _TURN_SIZE):
        turn = row.open_turn([user_message("Hi")], parent=parent).turn
        items = [
            i for text in texts[start : start + _TURN_SIZE] for i in items_of(text)
        ]
        Item.objects.bulk_create(
            Item.of(turn, n + 1, item, origin=Item.Origin.OUTPUT)
            for n, item in enumerate(items)
        )
        parent = _end(turn)
    return [f"/chat/{row.pk}/"]


def _one_line(text: str) -> str:
    return " ".join(text.replace('"', "'").split())


def _end(turn: Turn) -> Turn:
    turn.status = Turn.Status.COMPLETED
    turn.started_at = turn.finished_at = turn.created_at
    turn.save()
    return turn
