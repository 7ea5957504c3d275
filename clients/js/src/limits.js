// Every bound of the client, in one place. Times are in milliseconds.

/** An ack goes out after this many events … */
export const ACK_EVENTS = 100;

/** … or this long after the first event that no ack covers. */
export const ACK_DELAY = 1_000;

/** Upper bounds of the waits between attempts, until a server says otherwise. */
export const BACKOFF = [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 60_000];

/** Steps of a server's own list that are looked at. */
export const BACKOFF_STEPS = 64;

/** Refusals in a row after which a client stops, until a server says otherwise. */
export const MAX_ATTEMPTS = 5;

/** How often heartbeats come, until a server says otherwise. */
export const HEARTBEAT_INTERVAL = 30_000;

/** Nothing received for this many heartbeat intervals: the connection is dead. */
export const SILENT_INTERVALS = 2;

/** A token shown again within this time is taken for a lost reply; later, for a theft. */
export const TOKEN_GRACE = 10_000;

/** How long what was asked on a socket that was given up may still reach the server. */
export const LATE_ASK = 60_000;

/** Messages kept for sending; beyond that they are given up at once. */
export const MAX_UNACCEPTED = 1_000;

/** Bytes of messages kept for sending; a larger single message is kept alone. */
export const MAX_UNACCEPTED_BYTES = 4 * 1024 * 1024;

/** The longest a server can make a client wait by naming a time. */
export const MAX_RETRY_AFTER = 24 * 60 * 60 * 1000;

/** How long opening a socket may take, authentication included. */
export const CONNECT_TIMEOUT = 10_000;

/** How long the last words on a socket may take. */
export const FAREWELL = 1_000;

/** Items that wait for a slow application; beyond that the connection is let go until it has caught up. */
export const WINDOW_ITEMS = 10_000;

/** The longest time that a timer can be set to. */
export const LONGEST_TIMER = 2 ** 31 - 1;

/** How often the clock is looked at, to notice that the machine was asleep … */
export const SLEEP_CHECK = 5_000;

/** … which it was if the look comes this much too late. */
export const SLEEP_SLACK = 10_000;

/** How long a tab without Web Locks waits for another to say that it has the session. */
export const TAB_ANSWER = 200;

/** How often a waiting tab without Web Locks looks whether the owner is still there. */
export const TAB_CHECK = 5_000;
