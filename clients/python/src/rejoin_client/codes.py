"""What error codes and close codes mean for a client."""

from __future__ import annotations

from enum import Enum


class Recovery(Enum):
    """What can be done about an error."""

    CREATE_NEW_SESSION = "create_new_session"
    EXPORT_STATE_AGAIN = "export_state_again"
    RETRY_LATER = "retry_later"
    AUTHENTICATE_AGAIN = "authenticate_again"
    FIX_REQUEST = "fix_request"


_CODES = {
    Recovery.CREATE_NEW_SESSION: "SESSION_NOT_FOUND SESSION_EXPIRED SESSION_INACTIVE SESSION_CLOSED "
    "STATE_EXPIRED STATE_SUPERSEDED",
    Recovery.EXPORT_STATE_AGAIN: "STATE_VERIFICATION_FAILED",
    Recovery.RETRY_LATER: "SESSION_ALREADY_ACTIVE RATE_LIMITED SERVER_BUSY DATABASE_UNAVAILABLE "
    "AGENT_FAILED INTERNAL_ERROR",
    Recovery.AUTHENTICATE_AGAIN: "SESSION_NOT_OWNED UNAUTHORIZED TOKEN_INVALID TOKEN_EXPIRED TOKEN_REUSED",
    Recovery.FIX_REQUEST: "MISSING_SESSION_ID INVALID_MESSAGE UNKNOWN_EVENT ACK_AHEAD MESSAGE_TOO_LARGE "
    "STATE_TOO_LARGE ID_INVALID",
}

_RECOVERY = {code: recovery for recovery, codes in _CODES.items() for code in codes.split()}

#: Another connection attached to the session.
SUPERSEDED = 4100

#: The session was ended.
SESSION_ENDED = 4101

#: A frame was over the limit of the peer (RFC 6455).
MESSAGE_TOO_BIG = 1009


def known(code: object) -> str:
    """The code itself; one of a later protocol version counts as an internal error of the server."""
    return code if isinstance(code, str) and code in _RECOVERY else "INTERNAL_ERROR"


def recovery(code: str) -> Recovery:
    """What can be done about an error."""
    return _RECOVERY.get(code, Recovery.RETRY_LATER)


def is_about_state(code: str) -> bool:
    """Whether an error is about a snapshot and not about the session."""
    return code in ("STATE_EXPIRED", "STATE_SUPERSEDED")


def is_about_token(code: str) -> bool:
    """Whether an error is about the reconnect token."""
    return code.startswith("TOKEN_")


def outcome_is_unknown(code: str) -> bool:
    """Whether the server may have done what was asked although it answered with this error."""
    return code in ("DATABASE_UNAVAILABLE", "INTERNAL_ERROR")


def means_stop(code: int | None) -> bool:
    """4100 to 4199 mean "do not come back"; every other close code is a reason to try again."""
    return code is not None and 4100 <= code <= 4199
