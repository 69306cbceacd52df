from __future__ import annotations

from django.urls import path
from drf_spectacular.views import SpectacularAPIView

from conversations.api import views

app_name = "api"

urlpatterns = [
    path("conversations/", views.ConversationsView.as_view(), name="conversations"),
    path(
        "conversations/<slug:pk>/",
        views.ConversationView.as_view(),
        name="conversation",
    ),
    path("conversations/<slug:pk>/turns/", views.TurnsView.as_view(), name="turns"),
    path("turns/<slug:pk>/", views.TurnView.as_view(), name="turn"),
    path("turns/<slug:pk>/cancel/", views.CancelView.as_view(), name="cancel"),
    path("turns/<slug:pk>/events/", views.EventsView.as_view(), name="events"),
    path("models/", views.ModelsView.as_view(), name="models"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
]
