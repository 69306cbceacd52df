"""Ten calls by the client that openapi-python-client has generated."""

from __future__ import annotations

import io
import os
import sys

from parley_client.api.attachments import attachments_retrieve
from parley_client.api.conversations import (
    conversations_attachments_create,
    conversations_create,
    conversations_destroy,
    conversations_list,
    conversations_partial_update,
    conversations_turns_create,
    conversations_turns_list,
)
from parley_client.api.models import models_retrieve
from parley_client.api.search import search_retrieve
from parley_client.client import AuthenticatedClient
from parley_client.models import (
    ConversationRequest,
    ConversationsAttachmentsCreateBody,
    PatchedConversationRequest,
    TurnRequestRequest,
)
from parley_client.types import File

client = AuthenticatedClient(os.environ["BASE_URL"], os.environ["TOKEN"])
with client:
    models = models_retrieve.sync(client=client)
    assert models.results[0].id
    chat = conversations_create.sync(
        client=client, body=ConversationRequest(title="Tea in Paris")
    )
    renamed = conversations_partial_update.sync(
        chat.id, client=client, body=PatchedConversationRequest(title="Tea in Oslo")
    )
    assert renamed.title == "Tea in Oslo"
    turn = conversations_turns_create.sync(
        chat.id, client=client, body=TurnRequestRequest(input_="Hello", wait=True)
    )
    assert turn.status == "completed", turn
    [listed] = conversations_turns_list.sync(chat.id, client=client).results
    assert listed.id == turn.id
    assert conversations_list.sync(client=client, query="oslo").results[0].id == chat.id
    found = search_retrieve.sync(client=client, query="Oslo")
    assert found.results[0].conversation == chat.id
    sent = conversations_attachments_create.sync(
        chat.id,
        client=client,
        body=ConversationsAttachmentsCreateBody(
            file=File(io.BytesIO(b"green"), "tea.txt", "text/plain")
        ),
    )
    file = attachments_retrieve.sync_detailed(sent.data[0].id, client=client)
    assert file.content == b"green"
    gone = conversations_destroy.sync_detailed(chat.id, client=client)
    assert gone.status_code == 204
    sys.stdout.write("10 calls\n")
