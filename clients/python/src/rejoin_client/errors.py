"""What a session could not do, and why."""

from __future__ import annotations

_SENTENCES = {
    "not_sent": "the message was never sent, and there is no session to send it to",
    "outcome_unknown": "the message was sent to a session that is gone; the agent may have acted on it",
    "outbox_full": "too many messages wait already",
    "stopped": "the session has stopped",
    "storage": "what was kept of the session can't be read",
}


class SessionError(Exception):
    """Why a message was not, or may not have been, accepted; or why something else did not work."""

    def __init__(self, reason: str, code: str | int | None = None) -> None:
        sentence = _SENTENCES.get(reason, f"the server refused it ({code})")
        super().__init__(sentence if code is None or reason == "refused" else f"{sentence} ({code})")
        self.reason = reason
        self.code = code
