"""Labels of the audit log's actions; the log and its export have only the codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_lazy as _

_WHOLE: Mapping[str, Any] = {"sign_in": _("signed in"), "sign_out": _("signed out")}
_AREAS: Mapping[str, Any] = {
    "account": _("own account"),
    "admin": _("row of the admin"),
    "approval": _("approval of a call"),
    "budget": _("limit of use"),
    "config": _("configuration"),
    "content": _("what people wrote"),
    "data": _("own data"),
    "hold": _("legal hold"),
    "identity": _("connected identity"),
    "invitation": _("invitation"),
    "key": _("API key"),
    "log": _("audit log"),
    "person": _("person's data"),
    "provisioning": _("SCIM id"),
    "retention": _("retention"),
    "second_factor": _("second factor"),
    "server": _("MCP server"),
    "share": _("sharing"),
    "terms": _("terms of use"),
    "token": _("access token"),
    "user": _("user"),
}
_VERBS: Mapping[str, Any] = {
    "accept": _("accepted"),
    "add": _("added"),
    "change": _("changed"),
    "close": _("closed"),
    "decide": _("decided"),
    "delete": _("deleted"),
    "erase": _("erased"),
    "export": _("exported"),
    "lift": _("lifted"),
    "load": _("loaded from a file"),
    "raise": _("raised"),
    "read": _("read"),
    "revoke": _("revoked"),
    "set": _("set"),
    "sign_in": _("signed in"),
    "sign_out": _("signed out"),
}


def label_action(code: str) -> str:
    """The label of a code, such as "API key: changed" for `key.change`; the code itself
    if it has no label."""
    if code in _WHOLE:
        return str(_WHOLE[code])
    area, _dot, verb = code.partition(".")
    if area not in _AREAS or verb not in _VERBS:
        return code
    return f"{_AREAS[area]}: {_VERBS[verb]}"
