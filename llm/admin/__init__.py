"""Registration of the admin of providers, keys, models and model calls."""

from __future__ import annotations

from django.contrib import admin
from django.utils.translation import gettext_lazy as _

from llm.admin.api_key import ApiKeyAdmin
from llm.admin.bases import BoundedPaginator, LargeTableAdmin, SecretFormAdmin
from llm.admin.bulk_actions import (
    GroupRightsForm,
    GroupRightsMixin,
    ask_about_rows,
    change_each,
    filled_form,
    is_confirmed,
    refusal_of,
    regroup_each,
    report_rows,
    switch_enabled,
)
from llm.admin.language_model import LanguageModelAdmin
from llm.admin.model_call import ModelCallAdmin
from llm.admin.model_pool import ModelPoolAdmin
from llm.admin.own_key import OwnKeyAdmin
from llm.admin.provider import ProviderAdmin
from llm.admin.used_by import Use, UsedByAdmin

__all__ = [
    "ApiKeyAdmin",
    "BoundedPaginator",
    "GroupRightsForm",
    "GroupRightsMixin",
    "LanguageModelAdmin",
    "LargeTableAdmin",
    "ModelCallAdmin",
    "ModelPoolAdmin",
    "OwnKeyAdmin",
    "ProviderAdmin",
    "SecretFormAdmin",
    "Use",
    "UsedByAdmin",
    "ask_about_rows",
    "change_each",
    "filled_form",
    "is_confirmed",
    "refusal_of",
    "regroup_each",
    "report_rows",
    "switch_enabled",
]

admin.site.site_header = "Parley"
admin.site.site_title = "Parley"
admin.site.index_title = _("Administration")
