"""Ten calls by the Python client that openapi-generator has generated."""

from __future__ import annotations

import os
import sys

import openapi_client as parley

configuration = parley.Configuration(
    host=os.environ["BASE_URL"], access_token=os.environ["TOKEN"]
)
with parley.ApiClient(configuration) as client:
    chats = parley.ConversationsApi(client)
    assert parley.ModelsApi(client).models_retrieve().results[0].id
    chat = chats.conversations_create(parley.ConversationRequest(title="Tea in Paris"))
    renamed = chats.conversations_partial_update(
        chat.id, parley.PatchedConversationRequest(title="Tea in Oslo")
    )
    assert renamed.title == "Tea in Oslo"
    said = parley.TurnRequestRequestInput("Hello")
    turn = chats.conversations_turns_create(
        chat.id, parley.TurnRequestRequest(input=said, wait=True)
    )
    [listed] = chats.conversations_turns_list(chat.id).results
    assert listed.status == "completed", (turn, listed)
    assert chats.conversations_list(query="oslo").results[0].id == chat.id
    found = parley.SearchApi(client).search_retrieve(query="Oslo")
    assert found.results[0].conversation == chat.id
    sent = chats.conversations_attachments_create(chat.id, ("tea.txt", b"green"))
    file = parley.AttachmentsApi(client).attachments_retrieve(sent.data[0].id)
    assert bytes(file) == b"green"
    chats.conversations_destroy(chat.id)
    sys.stdout.write("10 calls\n")
