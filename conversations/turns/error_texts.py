"""The errors of turns, and refusals of messages, in the reader's language.

A turn's error is stored in English, for programs too. Here are the texts that Parley
itself writes; what a provider says is shown as it is. A text may have places, which are
filled as they were.
"""

from __future__ import annotations

from django.utils.translation import gettext_noop

from conversations.access.limits.refusal_texts import translate_refusal
from llm.error_texts.english_texts import EnglishTexts

TEXTS = (
    # llm.errors
    gettext_noop("The model call failed."),
    gettext_noop(
        "The model cannot answer this request as it is; change it and try again."
    ),
    gettext_noop("The provider refused the API key; ask the staff to check it."),
    gettext_noop(
        'The provider refused your own key; enter another one on the page "Own keys".'
    ),
    gettext_noop(
        "The conversation is too long for the model; shorten it or choose another."
    ),
    gettext_noop("This model is not available; choose another one."),
    gettext_noop("The provider's content policy does not allow this request."),
    gettext_noop(
        "The account at the provider has no credit left; ask the staff to add credit."
    ),
    gettext_noop(
        "Your own key has no credit left; add some and enter it again at /keys/."
    ),
    gettext_noop("The provider could not process the request; try again in a moment."),
    gettext_noop("The provider's rate limit is reached; try again in a moment."),
    gettext_noop("The provider is down or overloaded; try again in a moment."),
    gettext_noop("The provider's answer ended too early; try again."),
    gettext_noop("The provider did not answer in time; try again in a moment."),
    gettext_noop("The provider could not be reached in time; try again in a moment."),
    gettext_noop("All connections to providers are in use; try again in a moment."),
    gettext_noop(
        "The provider sent an invalid response; try again, or report it to the staff."
    ),
    # llm
    gettext_noop(
        "The provider's address redirects to another address; ask the staff to correct"
        " it."
    ),
    gettext_noop(
        "The provider's address returned a web page instead of an API response; ask"
        " the staff to correct it."
    ),
    gettext_noop("The provider's address is not a URL; ask the staff to correct it."),
    gettext_noop(
        "The provider's address is in a private network; ask the staff to allow"
        " private networks for this provider or to correct the address."
    ),
    gettext_noop(
        "The API key contains a character that is not allowed; enter it again."
    ),
    gettext_noop(
        "The provider uses an unsupported content encoding (%(name)s); ask the staff to"
        " correct it."
    ),
    gettext_noop(
        "The conversation contains something that this provider's API cannot represent."
    ),
    gettext_noop("The request contains a value that JSON cannot represent."),
    gettext_noop(
        "The provider %(provider)s does not support the wire format %(format)s; ask the"
        " staff to correct it."
    ),
    gettext_noop(
        "Your own key for the provider %(provider)s cannot be sent to its address;"
        ' enter it again on the page "Own keys".'
    ),
    gettext_noop(
        "The key %(key)s of the provider %(provider)s is empty; ask the staff to enter"
        " it."
    ),
    gettext_noop(
        "The key %(key)s of the provider %(provider)s was entered for a different"
        " address of the provider and is not sent; ask the staff to enter it again."
    ),
    gettext_noop(
        "The key %(key)s of the provider %(provider)s cannot be decrypted; ask the"
        " staff to restore ENCRYPTION_KEYS or enter it again."
    ),
    gettext_noop(
        "The model %(model)s has an invalid option; ask the staff to correct it:"
        " %(problem)s"
    ),
    gettext_noop("The model wrote a tool call that cannot be read; try again."),
    gettext_noop("The model did not make the required tool call."),
    gettext_noop("The model's answer does not match the requested JSON Schema."),
    gettext_noop("A JSON Schema is too large for this model."),
    gettext_noop("A picture is too large for this model; send a smaller one."),
    gettext_noop("There is no message to answer."),
    gettext_noop("Items of the type %(type)s cannot be sent to this provider."),
    # conversations
    gettext_noop("Internal error; the staff can find the details in the log."),
    gettext_noop("The answer was interrupted too often; send the message again."),
    gettext_noop(
        "Nobody approved a tool call in time; it did not run. Send the message again."
    ),
    gettext_noop("The person who wrote this may no longer use this conversation."),
    gettext_noop("The budget of this access token is used up."),
    gettext_noop(
        "The price of the model %(model)s is unknown, so a limit of cost cannot allow"
        " it; ask the staff to enter its prices."
    ),
    # refusals of messages
    gettext_noop(
        "You may take %(limit)s requests a minute; try again in %(seconds)s s."
    ),
    gettext_noop("You may take %(limit)s bytes a minute; try again in %(seconds)s s."),
    gettext_noop("You may take %(limit)s tokens a minute; try again in %(seconds)s s."),
    gettext_noop(
        "The server is under maintenance and takes no new messages; try again later."
    ),
    gettext_noop("The server is busy; try again in a few seconds."),
    gettext_noop("You may read this conversation, but not write in it."),
    gettext_noop("This conversation no longer exists."),
    gettext_noop("There is no such turn in this conversation."),
    gettext_noop("There is no such question that you may answer."),
    gettext_noop("There is no model %(name)s; choose another one."),
    gettext_noop(
        "Stored files cannot be reached; nothing was lost. Try again in a moment."
    ),
    gettext_noop("The database cannot be reached; try again in a moment."),
    gettext_noop("The server's storage is full; nothing was saved. Try again later."),
    gettext_noop(
        "What this key's request opened was removed; use a new key to send it again."
    ),
    gettext_noop(
        "This message cannot join the running answer: it has a file, or another program"
        " asked. It is sent after the answer."
    ),
    gettext_noop("It has been sent already."),
    gettext_noop(
        "There is nothing to continue: the answer was not cut off, and the message has"
        " not reached a limit, or all its results are answered."
    ),
    gettext_noop("This question has been decided already, or has expired."),
    gettext_noop("there is no such file in this conversation."),
)

_TEXTS = EnglishTexts(TEXTS)


def text_for_reader(exc: Exception) -> str:
    """The text of an error in the active language."""
    localized = getattr(exc, "localized", None)
    return localized() if localized else in_own_language(str(exc))


def in_own_language(message: str) -> str:
    """The message in the active language, if Parley wrote it; else as it is."""
    return _TEXTS.translate(message) or translate_refusal(message) or message
