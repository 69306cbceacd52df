"""Page on which users see and delete their memories."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST

from conversations.models.memory import Memory, forget


@login_required
@never_cache
@require_GET
def memories(request: HttpRequest) -> HttpResponse:
    rows = Memory.objects.of(request.user.pk).select_related("conversation")
    return render(request, "conversations/memories.html", {"memories": rows})


@login_required
@require_POST
def forget_memory(request: HttpRequest, pk: int) -> HttpResponse:
    if not forget(request.user.pk or 0, pk):
        raise Http404
    return redirect("memories")
