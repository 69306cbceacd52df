"""Keyboard shortcuts of the chat pages: what they do, and which keys they have.

A key is written as the browser names it, after the modifiers that are held: `n`, `?`,
`Ctrl+Shift+f`, `Alt+ArrowUp`. `static/js/people/shortcuts.js` names keys in the same
way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.core.exceptions import ValidationError
from django.utils.translation import gettext_lazy as _

#: What each shortcut does, and its usual key. Single characters only: browsers use none
#: of them, and a screen reader that uses them does not pass them on to the page.
ACTIONS: dict[str, tuple[Any, str]] = {
    "help": (_("Show this list"), "?"),
    "new": (_("New chat"), "n"),
    "search": (_("Search"), "s"),
    "focus": (_("Go to the message box"), "i"),
    "stop": (_("Stop the answer"), "x"),
    "copy": (_("Copy the last answer"), "c"),
    "quote": (_("Quote the selected text"), "q"),
    "sidebar": (_("Show or hide the list of chats"), "b"),
    "previous": (_("Previous chat"), "k"),
    "next": (_("Next chat"), "j"),
}
#: Those that the page which finds and selects conversations has too.
LIBRARY_ACTIONS = {
    name: ACTIONS[name] for name in ("help", "new", "search", "previous", "next")
}
MAX_KEY = 40  # characters
_NAMED = "Arrow(?:Up|Down|Left|Right)|F(?:[1-9]|1[0-2])|Home|End|PageUp|PageDown|Insert"
_KEY = re.compile(rf"(?:Ctrl\+)?(?:Alt\+)?(?:Shift\+)?(?:Meta\+)?(?:[^\s]|{_NAMED})")
#: Keys that browsers and assistive technology keep to themselves, or that people need.
_RESERVED = re.compile(
    r"(?:Ctrl\+(?:Shift\+)?|(?:Shift\+)?Meta\+)[acfnqrtvwxzlp0+\-]|(?:Ctrl\+)?Alt\+F4|F(?:5|6|11|12)"
    r"|Ctrl\+Alt\+.+|Insert"
)


def keys_of(changed: Mapping[str, str]) -> dict[str, str]:
    """The key of each action, where `changed` replaces usual keys; "" is none."""
    return {name: changed.get(name, usual) for name, (_, usual) in ACTIONS.items()}


def validate_shortcuts(value: Any) -> None:
    """Raise ValidationError unless `value` has known actions and free, valid keys."""
    if not isinstance(value, dict):
        raise ValidationError(_("Write an object that names keys by action."))
    for name, key in value.items():
        _check_key(name, key)
    owners: dict[str, str] = {}
    for name, key in keys_of(value).items():
        if key and key in owners:
            raise ValidationError(
                _("The key %(key)s is used twice: for “%(first)s” and “%(second)s”."),
                params={
                    "key": key,
                    "first": ACTIONS[owners[key]][0],
                    "second": ACTIONS[name][0],
                },
            )
        owners[key] = name


def _check_key(name: Any, key: Any) -> None:
    if name not in ACTIONS:
        raise ValidationError(
            _("There is no action %(name)s; use %(known)s."),
            params={"name": str(name)[:MAX_KEY], "known": ", ".join(ACTIONS)},
        )
    shown = {"key": str(key)[:MAX_KEY]}
    if not isinstance(key, str) or not (key == "" or _KEY.fullmatch(key)):
        raise ValidationError(
            _(
                "%(key)s is no key. Write one such as n, Ctrl+Shift+f or Alt+ArrowUp;"
                " empty for none."
            ),
            params=shown,
        )
    if _RESERVED.fullmatch(key):
        raise ValidationError(
            _("Browsers use %(key)s themselves; choose another key."), params=shown
        )
