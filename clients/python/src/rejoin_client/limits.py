"""Every bound of the client, in one place. Times are in milliseconds unless a name says otherwise."""

from __future__ import annotations

#: An ack goes out after this many events ...
ACK_EVENTS = 100

#: ... or this long after the first event that no ack covers.
ACK_DELAY = 1_000

#: Upper bounds of the waits between attempts, until a server sends its own.
BACKOFF = (1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 60_000)

#: Steps of a server's own list that are used.
BACKOFF_STEPS = 64

#: Refusals in a row after which a client stops, until a server says otherwise.
MAX_ATTEMPTS = 5

#: How often heartbeats come, until a server says otherwise.
HEARTBEAT_INTERVAL = 30_000

#: Nothing received for this many heartbeat intervals: the connection is dead.
SILENT_INTERVALS = 2

#: A token shown again within this time counts as a lost reply; later, as a theft.
TOKEN_GRACE = 10_000

#: How long a request on an abandoned socket may still reach the server.
LATE_ASK = 60_000

#: Messages kept for sending; beyond that they are given up at once.
MAX_UNACCEPTED = 1_000

#: Bytes of messages kept for sending; a larger single message is kept alone.
MAX_UNACCEPTED_BYTES = 4 * 1024 * 1024

#: The longest a server can make a client wait by naming a time.
MAX_RETRY_AFTER = 24 * 60 * 60 * 1000

#: The largest integer that every JSON implementation keeps exact.
MAX_SAFE_INTEGER = 2**53 - 1

#: Seconds that opening a connection may take, authentication included.
CONNECT_TIMEOUT_S = 10.0

#: Seconds that a closing handshake may take.
CLOSE_TIMEOUT_S = 1.0

#: Items that may wait for a slow application; at twice this the connection is dropped until it has
#: caught up.
WINDOW_ITEMS = 10_000

#: The largest frame that is read from a server.
MAX_FRAME_BYTES = 64 * 1024 * 1024

#: How often the clock is looked at, to notice that the computer was asleep ...
SLEEP_CHECK = 5_000

#: ... which it was if the look comes this much too late.
SLEEP_SLACK = 10_000
