"""Full outputs of calls, which go into a bucket after the results are written.

On a local disk they are stored with the results. A bucket may be slow, and the result,
which is what the model waits for, is not lost with its full text.
"""

from __future__ import annotations

from collections.abc import Sequence

from conversations.engine.process.file_threads import begin_on_file_thread
from conversations.turns.attachments import save_texts
from conversations.turns.file_storage import are_local
from tools.execute import CallOutcome


def send_to_bucket(conversation_id: str, outcomes: Sequence[CallOutcome]) -> None:
    """Returns at once."""
    cut = [outcome for outcome in outcomes if outcome.full_text is not None]
    if cut and not are_local():
        begin_on_file_thread(save_texts, conversation_id, cut)
