"""What is wrong with a provider's address, in sentences for people in the chat.

`llm.error_texts.for_staff` says the same to staff.
"""

from __future__ import annotations

PRIVATE_NETWORK = (
    "The provider's address is in a private network; ask the staff to allow private"
    " networks for this provider or to correct the address."
)
WEB_PAGE = (
    "The provider's address returned a web page instead of an API response; ask the"
    " staff to correct it."
)
REDIRECT = (
    "The provider's address redirects to another address; ask the staff to correct it."
)
NO_URL = "The provider's address is not a URL; ask the staff to correct it."
