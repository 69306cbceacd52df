"""App configurations of the project and of its admin site."""

from __future__ import annotations

from django.apps import AppConfig
from django.contrib.admin import apps as admin


class ProjectConfig(AppConfig):
    name = "project"

    def ready(self) -> None:
        # All models are loaded, and the admin, which reads their names, is not.
        from project.admin_pages.names import translate_names

        translate_names()


class AdminConfig(admin.SimpleAdminConfig):
    """The URLs load the admin: a first start does so while it migrates."""

    default = False
    default_site = "project.admin_site.AdminSite"
