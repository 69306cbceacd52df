"""Root of the URLs."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

from conversations.gateway.document.view import document

admin.autodiscover()

urlpatterns = [
    path("", include("conversations.urls")),
    path("", include("project.accounts.urls")),
    path("admin/", admin.site.urls),
    path("api/schema/gateway/", document, name="gateway-schema"),
    path("api/", include("conversations.api.urls")),
]

handler400 = "conversations.api.errors.bad_request"
handler404 = "project.exception_handler.not_found"
handler500 = "project.exception_handler.server_error"
