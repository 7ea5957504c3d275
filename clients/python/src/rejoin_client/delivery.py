"""How much of the out log the application has.

Events in order and once, gaps before what follows them, acks of what was delivered and of nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, auto

from .limits import ACK_DELAY, ACK_EVENTS
from .types import Gap, Range, SavedPosition


class Verdict(Enum):
    """What to do with something that came."""

    TELL = auto()
    """Hand it to the application."""
    KNOWN = auto()
    """Nothing: the application has it."""
    NEW_HOLE = auto()
    """Report that something before it is missing."""
    OLD_HOLE = auto()
    """Nothing: the hole was reported before."""


@dataclass
class Counts:
    """How many events were delivered, dropped as duplicates, came too early, and how many gaps were told."""

    delivered: int = 0
    duplicates: int = 0
    out_of_order: int = 0
    gaps: int = 0


@dataclass(frozen=True)
class Ack:
    """An ack stands for everything delivered."""

    last_seq: int
    received_count: int
    gap_detected: bool


class Delivery:
    """The application's position in the out log."""

    def __init__(self, position: SavedPosition | None) -> None:
        self.counts = Counts()
        self._start(position)

    def _start(self, position: SavedPosition | None) -> None:
        self.epoch = position["epoch"] if position else None
        #: After this event; None is right before the next one that comes, whatever its seq.
        self._place: int | None = position["seq"] if position else 0
        #: A gap that the confirmation announced, and the epoch it leads to. The position moves when the
        #: application is told: if the connection breaks before, the gap is announced again.
        self._announced: tuple[Gap, str] | None = None
        #: The epoch of a restored session. It takes effect with the next frame, because only that one says
        #: whether the position is good there.
        self._restored_epoch: str | None = None
        #: The first seq that the server said it would send, until it has sent something.
        self._begins_at: int | None = None
        self._hole = False
        self._after_gap = False
        #: The position at the last heartbeat, if the server was ahead then.
        self._behind_at: int | None = None
        self._unacked = 0
        self._ack_at: int | None = None

    @property
    def last_seq(self) -> int:
        """The last event the application has; 0 where that is unknown, so that what is gone is told as a gap."""
        return 0 if self._place is None else self._place

    def position(self) -> SavedPosition | None:
        """The position to keep."""
        return None if self.epoch is None else {"epoch": self.epoch, "seq": self.last_seq}

    def created(self, epoch: str, replay_from: int) -> None:
        """Attached to a new session."""
        self._start({"epoch": epoch, "seq": max(0, replay_from - 1)})

    def resumed(self, epoch: str, replay_from: int, gap: Gap | None, now: int) -> None:
        """Attached again to the same session."""
        changed = self.epoch is not None and self.epoch != epoch
        if self.epoch is None:
            self.epoch = epoch
        self._begin(now)
        self._begins_at = replay_from
        told = Gap("position_unknown") if changed else gap
        self._announced = (told, epoch) if told else None

    def restored(self, epoch: str, gap: Gap | None, now: int) -> None:
        """Attached to a session made from the snapshot: another epoch, the same numbering."""
        self._begin(now)
        self._restored_epoch = epoch
        self._announced = (gap, epoch) if gap else None

    def _begin(self, now: int) -> None:
        self._restored_epoch = None
        self._begins_at = None
        self._hole = False
        self._after_gap = False
        self._behind_at = None
        self._ack_at = now + ACK_DELAY if self._unacked else None

    def event(self, seq: int, now: int) -> Verdict:
        """An event came. A gap that was announced must have been told before."""
        if self._place is not None:
            if seq <= self._place:
                self.counts.duplicates += 1
                return Verdict.KNOWN
            if seq > self._place + 1:
                self.counts.out_of_order += 1
                return self._open_hole()
        self.counts.delivered += 1
        self._unacked += 1
        self._after_gap = False
        self._move_to(seq, now)
        return Verdict.TELL

    def untold(self, notice: Gap | None) -> Gap | None:
        """The announced gap that must be told before a frame, unless that frame is the notice of the same gap."""
        if self._restored_epoch is not None:
            self.epoch = self._restored_epoch
            self._restored_epoch = None
        gap = self._announced[0] if self._announced else None
        return None if gap is None or (notice and gap.reason == notice.reason) else gap

    def gap(self, gap: Gap, now: int) -> Gap | Verdict:
        """A gap is to be told: the gap as the application sees it, or what to do instead."""
        announced, self._announced = self._announced, None
        told, place = gap, self._place
        if gap.missing and place is not None:
            if gap.missing.last <= place:
                return Verdict.KNOWN
            if gap.missing.first > place + 1:
                return self._open_hole()
            missing = Range(max(gap.missing.first, place + 1), gap.missing.last)
            told = replace(gap, missing=missing, lost=_unseen(gap.lost, place))
        self.counts.gaps += 1
        self._after_gap = True
        self._move_to(told.missing.last if told.missing else self._place_unknown(announced), now)
        return told

    def _place_unknown(self, announced: tuple[Gap, str] | None) -> int | None:
        """The position means nothing to the server: it begins with what it holds."""
        if announced:
            self.epoch = announced[1]
        self._unacked = 0
        return None if self._begins_at is None else max(0, self._begins_at - 1)

    def _open_hole(self) -> Verdict:
        verdict = Verdict.OLD_HOLE if self._hole else Verdict.NEW_HOLE
        self._hole = True
        return verdict

    def _move_to(self, place: int | None, now: int) -> None:
        self._place = place
        self._begins_at = None
        self._hole = False
        if self._ack_at is None:
            self._ack_at = now + ACK_DELAY

    def state_fills_gap(self) -> bool:
        """A state came: whether it stands in for the gap just told."""
        fills, self._after_gap = self._after_gap, False
        return fills

    def heartbeat(self, head: int) -> Ack:
        """The ack that answers a heartbeat.

        It reports what did not arrive: an open hole once more, or the tail where the server was ahead and nothing
        came between two heartbeats.
        """
        behind = self.last_seq if head > self.last_seq else None
        stuck = behind is not None and behind == self._behind_at
        self._behind_at = behind
        return self.ack(self._hole or stuck)

    def ack_due(self) -> int | None:
        """When the next ack is due; never between a confirmation and the frame that follows it."""
        return self._ack_at if self._announced is None and self._restored_epoch is None else None

    def is_ack_due(self, now: int) -> bool:
        """Whether an ack is to be sent now."""
        due = self.ack_due()
        return due is not None and (due <= now or self._unacked >= ACK_EVENTS)

    def ack(self, gap_detected: bool) -> Ack:
        """The ack that is due."""
        received, self._unacked = self._unacked, 0
        self._ack_at = None
        return Ack(self.last_seq, received, gap_detected)


def _unseen(lost: Range | None, place: int) -> Range | None:
    if lost is None:
        return None
    first = max(lost.first, place + 1)
    return Range(first, lost.last) if first <= lost.last else None
