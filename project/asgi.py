"""Where ASGI servers find the application."""

from __future__ import annotations

import os

import django
from django.utils.module_loading import import_string

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "project.settings")
django.setup(set_prefix=False)

# Its modules need Django to be set up.
application = import_string("project.application.application")
