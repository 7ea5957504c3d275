//! What of the out log the application has: events in order and once, gaps before what follows them,
//! acks of what was delivered and of nothing else.

use super::input::Event;
use crate::limits;
use crate::position::{Epoch, Position, Seq, SeqRange};
use crate::resume::Gap;
use crate::time::Timestamp;

/// How far the application has come in the out log.
#[derive(Debug)]
pub(super) struct LogReceipt {
    epoch: Option<Epoch>,
    place: Place,
    /// A gap that the confirmation spoke of. The position moves when the application is told, not
    /// before: if the connection breaks in between, the gap is announced again.
    announced: Option<Announced>,
    /// The epoch of a session restored from the snapshot. It becomes ours with the next frame: only
    /// that one says whether the position is good there.
    restored: Option<Epoch>,
    /// The first seq the server said it would send, until it has sent something.
    begins_at: Option<Seq>,
    /// Something after the position did not arrive; what lies beyond is dropped.
    hole: bool,
    /// A gap was told, and neither an event nor a state since.
    after_gap: bool,
    /// Where the position was at the last heartbeat, if the server was ahead.
    behind_at: Option<Seq>,
    unacked: u64,
    ack_due: Option<Timestamp>,
    counts: DeliveryCounts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// After this event.
    After(Seq),
    /// Right before the next event that comes, whatever its seq.
    BeforeNext,
}

#[derive(Debug)]
struct Announced {
    gap: Gap,
    epoch: Epoch,
}

/// What became of events, for measuring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Handed to the application.
    pub delivered: u64,
    /// Dropped, because the application has them.
    pub duplicates: u64,
    /// Dropped, because something before them is missing; they are sent again.
    pub out_of_order: u64,
    /// Gaps told to the application.
    pub gaps: u64,
}

/// What to do with an event, or with the announcement of a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Judgement<T> {
    /// Tell the application.
    Tell(T),
    /// It knows.
    Known,
    /// Something before it is missing.
    Hole {
        /// Whether that is news, to be reported.
        new: bool,
    },
}

/// What an ack says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AckDue {
    pub(super) last_seq: Seq,
    pub(super) received_count: u64,
    pub(super) gap_detected: bool,
}

impl LogReceipt {
    pub(super) fn new(position: Option<Position>) -> Self {
        let (epoch, seq) = match position {
            Some(Position { epoch, seq }) => (Some(epoch), seq),
            None => (None, Seq::ZERO),
        };
        Self {
            epoch,
            place: Place::After(seq),
            announced: None,
            restored: None,
            begins_at: None,
            hole: false,
            after_gap: false,
            behind_at: None,
            unacked: 0,
            ack_due: None,
            counts: DeliveryCounts::default(),
        }
    }

    pub(super) fn epoch(&self) -> Option<&Epoch> {
        self.epoch.as_ref()
    }

    /// The last event the application has. Where nobody can say, from the beginning: what is gone is
    /// then announced as a gap.
    pub(super) fn last_seq(&self) -> Seq {
        match self.place {
            Place::After(seq) => seq,
            Place::BeforeNext => Seq::ZERO,
        }
    }

    pub(super) fn position(&self) -> Option<Position> {
        self.epoch.clone().map(|epoch| Position { epoch, seq: self.last_seq() })
    }

    pub(super) fn counts(&self) -> DeliveryCounts {
        self.counts
    }

    /// Attached to a session that begins anew.
    pub(super) fn created(&mut self, epoch: Epoch, replay_from: Seq) {
        let counts = self.counts;
        let position = Position { epoch, seq: replay_from.previous() };
        *self = Self { counts, ..Self::new(Some(position)) };
    }

    /// Attached again to the same session.
    pub(super) fn resumed(
        &mut self,
        epoch: Epoch,
        replay_from: Seq,
        gap: Option<Gap>,
        now: Timestamp,
    ) {
        let changed = self.epoch.as_ref().is_some_and(|known| *known != epoch);
        self.epoch.get_or_insert_with(|| epoch.clone());
        self.begin(now);
        self.begins_at = Some(replay_from);
        let gap = if changed { Some(Gap::PositionUnknown) } else { gap };
        self.announced = gap.map(|gap| Announced { gap, epoch });
    }

    /// Attached to a session that goes on from the snapshot: another epoch, the same numbering.
    pub(super) fn restored(&mut self, epoch: Epoch, gap: Option<Gap>, now: Timestamp) {
        self.begin(now);
        self.restored = Some(epoch.clone());
        self.announced = gap.map(|gap| Announced { gap, epoch });
    }

    /// What was on its way on the connection before is not coming any more.
    fn begin(&mut self, now: Timestamp) {
        self.restored = None;
        self.begins_at = None;
        self.hole = false;
        self.after_gap = false;
        self.behind_at = None;
        self.ack_due = (self.unacked > 0).then_some(now + limits::ACK_DELAY);
    }

    /// An event came. A gap that was announced must have been told before this is asked.
    pub(super) fn event(&mut self, event: &Event, now: Timestamp) -> Judgement<()> {
        if let Place::After(last) = self.place {
            if event.seq <= last {
                self.counts.duplicates += 1;
                return Judgement::Known;
            }
            if event.seq.steps_from(last) > 1 {
                self.counts.out_of_order += 1;
                return self.open_hole();
            }
        }
        self.counts.delivered += 1;
        self.unacked += 1;
        self.after_gap = false;
        self.move_to(Place::After(event.seq), now);
        Judgement::Tell(())
    }

    /// Something comes after the confirmation. The gap that is to be told before it, if the
    /// confirmation spoke of one and this is not the `notice` that tells it in more detail.
    pub(super) fn untold(&mut self, notice: Option<&Gap>) -> Option<Gap> {
        if let Some(epoch) = self.restored.take() {
            self.epoch = Some(epoch);
        }
        match (self.announced.as_ref()?.gap, notice) {
            (Gap::PositionUnknown, Some(Gap::PositionUnknown))
            | (Gap::Evicted { .. }, Some(Gap::Evicted { .. })) => None,
            (gap, _) => Some(gap),
        }
    }

    /// A gap is to be told. The position moves past it.
    pub(super) fn gap(&mut self, gap: Gap, now: Timestamp) -> Judgement<Gap> {
        let announced = self.announced.take();
        let (gap, place) = match gap {
            Gap::PositionUnknown => (gap, self.place_unknown(announced)),
            Gap::Evicted { missing, lost } => match self.place {
                Place::After(last) if missing.to <= last => return Judgement::Known,
                Place::After(last) if missing.from.steps_from(last) > 1 => return self.open_hole(),
                Place::After(last) => {
                    let unseen =
                        |range: SeqRange| SeqRange::new(range.from.max(last.next()), range.to);
                    let missing = unseen(missing).unwrap_or(missing);
                    let lost = lost.and_then(unseen);
                    (Gap::Evicted { missing, lost }, Place::After(missing.to))
                }
                Place::BeforeNext => (gap, Place::After(missing.to)),
            },
        };
        self.counts.gaps += 1;
        self.after_gap = true;
        self.move_to(place, now);
        Judgement::Tell(gap)
    }

    /// The position means nothing to the server: it begins with what it holds.
    fn place_unknown(&mut self, announced: Option<Announced>) -> Place {
        if let Some(Announced { epoch, .. }) = announced {
            self.epoch = Some(epoch);
        }
        self.unacked = 0;
        self.begins_at.map_or(Place::BeforeNext, |first| Place::After(first.previous()))
    }

    fn open_hole<T>(&mut self) -> Judgement<T> {
        Judgement::Hole { new: !std::mem::replace(&mut self.hole, true) }
    }

    fn move_to(&mut self, place: Place, now: Timestamp) {
        self.place = place;
        self.begins_at = None;
        self.hole = false;
        self.ack_due.get_or_insert(now + limits::ACK_DELAY);
    }

    /// A state came: whether it stands in for the gap just told.
    pub(super) fn state_fills_gap(&mut self) -> bool {
        std::mem::take(&mut self.after_gap)
    }

    /// A heartbeat came: the ack that answers it. It reports what did not arrive: an open hole, once
    /// more; or, where the server was ahead and nothing came between two heartbeats, the tail.
    pub(super) fn heartbeat(&mut self, head: Seq) -> AckDue {
        let last = self.last_seq();
        let behind = (head > last).then_some(last);
        let stuck = behind.is_some() && behind == self.behind_at;
        self.behind_at = behind;
        self.ack(self.hole || stuck)
    }

    /// When the next ack is due.
    pub(super) fn ack_due(&self) -> Option<Timestamp> {
        // Between a confirmation and what follows it, the position is one of the past.
        self.ack_due.filter(|_| self.announced.is_none() && self.restored.is_none())
    }

    /// Whether the next ack is due.
    pub(super) fn is_ack_due(&self, now: Timestamp) -> bool {
        self.ack_due().is_some_and(|due| due <= now || self.unacked >= limits::ACK_EVENTS)
    }

    /// The ack that is due. It stands for everything delivered.
    pub(super) fn ack(&mut self, gap_detected: bool) -> AckDue {
        let received_count = std::mem::take(&mut self.unacked);
        self.ack_due = None;
        AckDue { last_seq: self.last_seq(), received_count, gap_detected }
    }
}
