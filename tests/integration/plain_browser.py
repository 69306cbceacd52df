"""A browser that runs no script, for a person who knows only what its pages show.

It follows links and presses buttons by their words, and fills in fields by their
labels. Each page that it opens must lead on: no error, no button without an effect.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from tests.integration.clients import NO_TLS, PATIENCE

_VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta"}
_VOID |= {"path", "source", "track", "use", "wbr"}
_UNSEEN = {"head", "script", "style", "svg", "template"}
_FIELDS = {"input", "select", "textarea"}
_NO_TEXT = {"button", "submit", "reset", "file", "checkbox", "radio"}

File = tuple[str, bytes, str]  # name, content, type


@dataclass(eq=False)
class Element:
    tag: str
    attributes: dict[str, str]
    parent: Element | None = None
    children: list[Element | str] = field(default_factory=list)

    def get(self, name: str) -> str:
        return self.attributes.get(name, "")

    def has(self, name: str) -> bool:
        return name in self.attributes

    def walk(self) -> Iterator[Element]:
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def lineage(self) -> Iterator[Element]:
        element: Element | None = self
        while element:
            yield element
            element = element.parent

    def closest(self, tag: str) -> Element | None:
        return next((each for each in self.lineage() if each.tag == tag), None)

    @property
    def text(self) -> str:
        return "".join(
            child if isinstance(child, str) else child.text for child in self.children
        )

    @property
    def words(self) -> str:
        """What is read on it, without what is hidden, or is a field's value."""
        found = [
            child if isinstance(child, str) else child.words
            for child in self.children
            if isinstance(child, str) or not (child.is_hidden or child.tag in _FIELDS)
        ]
        return " ".join(" ".join(found).split())

    @property
    def is_hidden(self) -> bool:
        return (
            self.tag in _UNSEEN
            or self.has("hidden")
            or self.get("type") == "hidden"
            or "only-scripted" in self.get("class").split()
            or (self.tag == "dialog" and not self.has("open"))
        )

    @property
    def is_shown(self) -> bool:
        return not any(each.is_hidden for each in self.lineage())


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self._open = Element("document", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        element = Element(tag, values, self._open)
        self._open.children.append(element)
        if tag not in _VOID:
            self._open = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in _VOID and (found := self._open.closest(tag)):
            self._open = found.parent or self.root

    def handle_data(self, data: str) -> None:
        self._open.children.append(data)


class PlainBrowser:
    def __init__(self, url: str) -> None:
        self._http = httpx.Client(
            base_url=url,
            headers={"Accept": "text/html,*/*;q=0.8", "Accept-Language": "en"},
            follow_redirects=True,
            timeout=PATIENCE,
            verify=NO_TLS,
        )
        self.url = url
        self.page = Element("document", {})
        self.response = httpx.Response(200)

    def close(self) -> None:
        self._http.close()

    # What the page shows

    @property
    def words(self) -> str:
        """Of the main part, or of all where there is none."""
        main = next((e for e in self.page.walk() if e.tag == "main"), self.page)
        return main.words

    def shown(self, *tags: str) -> list[Element]:
        return [e for e in self.page.walk() if e.tag in tags and e.is_shown]

    def has_link(self, name: str) -> bool:
        return any(name in _names(each) for each in self.shown("a"))

    def value_of(self, label: str) -> str:
        return self._value(self._find(self.shown(*_FIELDS), label, self._label))

    # What a person does

    def open(self, path: str) -> None:
        self._take(self._http.get(urljoin(self.url, path)), {200})

    def follow(self, name: str, nth: int = 0) -> None:
        link = self._find(self.shown("a"), name, nth=nth)
        self._take(self._http.get(urljoin(self.url, link.get("href"))), {200})

    def download(self, name: str) -> bytes:
        """What a link gives that leads to no page; the page stays."""
        link = self._find(self.shown("a"), name)
        answer = self._http.get(urljoin(self.url, link.get("href")))
        assert answer.status_code == 200
        assert "attachment" in answer.headers["content-disposition"]
        return answer.content

    def wait_for_answer(self) -> None:
        while any("Refresh" in _names(each) for each in self.shown("button")):
            self.press("Refresh")

    def press(
        self,
        name: str,
        fill: Mapping[str, str] | None = None,
        *,
        ticks: Collection[str] = (),
        files: Collection[File] = (),
        nth: int = 0,
        refused: bool = False,
    ) -> None:
        """Fill in what the form of the button shows, and press it. `refused`: the page
        explains why the server does not accept it."""
        button = self._find(self.shown("button"), name, nth=nth)
        form = self._form(button)
        assert form, f"{name} belongs to no form"
        data = self._data(form, button, dict(fill or {}), set(ticks))
        target = button.get("formaction") or form.get("action") or self.url
        url = urljoin(self.url, target)
        headers = {"Origin": str(self._http.base_url).rstrip("/"), "Referer": self.url}
        if form.get("method").lower() != "post":
            answer = self._http.get(url, params=data)
        elif form.get("enctype") == "multipart/form-data":
            parts: list[Any] = [(key, (None, value)) for key, value in data]
            parts += [("file", file) for file in files]
            answer = self._http.post(url, files=parts, headers=headers)
        else:
            sent: dict[str, list[str]] = {}
            for key, value in data:
                sent.setdefault(key, []).append(value)
            answer = self._http.post(url, data=sent, headers=headers)
        self._take(answer, {400, 403, 404, 409} if refused else {200})

    # How

    def _take(self, answer: httpx.Response, statuses: set[int]) -> None:
        self.url, self.response = str(answer.url), answer
        reader = _Reader()
        reader.feed(answer.text)
        self.page = reader.root
        where = f"{answer.status_code} at {self.url}"
        assert answer.status_code in statuses, f"{where}: {self.words[:2000]}"
        assert self.words, f"nothing is shown: {where}"
        assert self._dead_ends() == [], where

    def _dead_ends(self) -> list[str]:
        """What a person may press or fill in, and what does nothing."""
        ids = {each.get("id") for each in self.page.walk() if each.has("id")}
        found = []
        for each in self.shown("a", "button", *_FIELDS):
            link = urlsplit(each.get("href"))
            is_dead = {
                "a": not each.has("href")
                or (each.get("href").startswith("#") and link.fragment not in ids),
                "button": not self._form(each)
                if each.get("type") != "button"
                else not each.has("popovertarget"),
            }.get(each.tag, not self._form(each) and not each.has("disabled"))
            if is_dead or (each.tag in ("a", "button") and not _names(each)):
                found.append(f"{each.tag} {each.attributes} {each.words}")
        return found

    def _form(self, control: Element) -> Element | None:
        if not control.has("form"):
            return control.closest("form")
        forms = (each for each in self.page.walk() if each.tag == "form")
        return next((e for e in forms if e.get("id") == control.get("form")), None)

    def _data(
        self, form: Element, button: Element, fill: dict[str, str], ticks: set[str]
    ) -> list[tuple[str, str]]:
        """What a browser sends. Everything in `fill` and `ticks` must be shown."""
        fields = [e for e in self.page.walk() if e.tag in _FIELDS and e.has("name")]
        fields = [e for e in fields if self._form(e) is form and not e.has("disabled")]
        labels = {e: self._label(e) if e.is_shown else "" for e in fields}
        assert set(fill) | ticks <= set(labels.values()), sorted(labels.values())
        data = [(button.get("name"), button.get("value"))] if button.has("name") else []
        ticked = [each for each in fields if labels[each] in ticks]
        groups = {each.get("name") for each in ticked if each.get("type") == "radio"}
        for each in fields:
            name, kind = each.get("name"), each.get("type")
            if kind in ("checkbox", "radio"):
                is_before = each.has("checked") and name not in groups
                if is_before or each in ticked:
                    data.append((name, each.attributes.get("value", "on")))
            elif labels[each] in fill:
                data.append((name, _choice(each, fill[labels[each]])))
            elif kind not in _NO_TEXT:
                value = self._value(each)
                is_needed = each.is_shown and each.has("required")
                is_checked = is_needed and not button.has("formnovalidate")
                assert value or not is_checked, f"{labels[each]} is required"
                data.append((name, value))
        return data

    def _label(self, control: Element) -> str:
        if control.has("aria-label"):
            return control.get("aria-label")
        labels = [each for each in self.page.walk() if each.tag == "label"]
        named = (
            e for e in labels if e.has("for") and e.get("for") == control.get("id")
        )
        label = next(named, None) or control.closest("label")
        return label.words if label else ""

    def _value(self, control: Element) -> str:
        if control.tag == "textarea":
            return control.text.removeprefix("\n")
        if control.tag == "input":
            return control.get("value")
        options = [each for each in control.walk() if each.tag == "option"]
        chosen = [each for each in options if each.has("selected")] or options[:1]
        return _value_of_option(chosen[-1]) if chosen else ""

    def _find(
        self, elements: list[Element], name: str, names: Any = None, nth: int = 0
    ) -> Element:
        found = [each for each in elements if name in (names or _names)(each)]
        assert len(found) > nth, f"{name} is not shown: {self.words[:2000]}"
        return found[nth]


def _names(element: Element) -> list[str]:
    names = [element.get("aria-label"), element.words, element.get("title")]
    return [" ".join(name.split()) for name in names if name.strip()]


def _value_of_option(option: Element) -> str:
    return option.get("value") if option.has("value") else option.words


def _choice(control: Element, wanted: str) -> str:
    """What is sent for the words that a person writes or chooses."""
    if control.tag != "select":
        return wanted
    options = [each for each in control.walk() if each.tag == "option"]
    return next(_value_of_option(each) for each in options if each.words == wanted)
