// What of the out log the application has: events in order and once, gaps before what follows them,
// acks of what was delivered and of nothing else.

import { ACK_DELAY, ACK_EVENTS } from './limits.js';

/** @typedef {{ from: number, to: number }} Range Both ends inclusive. */
/** @typedef {{ epoch: string, seq: number }} Position Everything up to and including `seq` was seen. */
/**
 * Events that were not seen and will not be. With reason `position_unknown` nobody can say which.
 * `lost` is what the state that follows does not make up for.
 * @typedef {{ reason: 'evicted', from: number, to: number, lost: Range|null }
 *   | { reason: 'position_unknown', from: null, to: null, lost: null }} Gap
 */
/** @typedef {{ last_seq: number, received_count: number, gap_detected: boolean }} Ack */

/** What to do: tell the application, nothing as it knows, or report a hole (if it is news). */
export const TELL = 'tell';
export const KNOWN = 'known';
export const NEW_HOLE = 'new_hole';
export const OLD_HOLE = 'old_hole';

/** How far the application has come in the out log. */
export class Delivery {
  /** A gap that the confirmation spoke of. The position moves when the application is told, not
   *  before: if the connection breaks in between, the gap is announced again.
   *  @type {{ gap: Gap, epoch: string }|null} */
  announced = null;
  /** The epoch of a session restored from the snapshot. It becomes ours with the next frame: only that
   *  one says whether the position is good there. @type {string|null} */
  restoredEpoch = null;
  /** The first seq the server said it would send, until it has sent something. @type {number|null} */
  beginsAt = null;
  /** Something after the position did not arrive; what lies beyond is dropped. */
  hole = false;
  /** A gap was told, and neither an event nor a state since. */
  afterGap = false;
  /** Where the position was at the last heartbeat, if the server was ahead. @type {number|null} */
  behindAt = null;
  unacked = 0;
  /** @type {number|null} */
  ackAt = null;
  counts = { delivered: 0, duplicates: 0, out_of_order: 0, gaps: 0 };

  /** @param {Position|null} position */
  constructor(position) {
    /** @type {string|null} */
    this.epoch = position?.epoch ?? null;
    /** After this event; null is right before the next that comes, whatever its seq. @type {number|null} */
    this.place = position?.seq ?? 0;
  }

  /** The last event the application has. Where nobody can say, from the beginning: what is gone is
   *  then announced as a gap. */
  lastSeq() {
    return this.place ?? 0;
  }

  /** @returns {Position|null} */
  position() {
    return this.epoch === null ? null : { epoch: this.epoch, seq: this.lastSeq() };
  }

  /** Attached to a session that begins anew. @param {string} epoch @param {number} replayFrom */
  created(epoch, replayFrom) {
    const { counts } = this;
    Object.assign(this, new Delivery({ epoch, seq: Math.max(0, replayFrom - 1) }), { counts });
  }

  /**
   * Attached again to the same session.
   * @param {string} epoch @param {number} replayFrom @param {Gap|null} gap @param {number} now
   */
  resumed(epoch, replayFrom, gap, now) {
    const changed = this.epoch !== null && this.epoch !== epoch;
    this.epoch ??= epoch;
    this.#begin(now);
    this.beginsAt = replayFrom;
    const told = changed ? UNKNOWN : gap;
    this.announced = told && { gap: told, epoch };
  }

  /**
   * Attached to a session that goes on from the snapshot: another epoch, the same numbering.
   * @param {string} epoch @param {Gap|null} gap @param {number} now
   */
  restored(epoch, gap, now) {
    this.#begin(now);
    this.restoredEpoch = epoch;
    this.announced = gap && { gap, epoch };
  }

  /** What was on its way on the connection before is not coming any more. @param {number} now */
  #begin(now) {
    this.restoredEpoch = null;
    this.beginsAt = null;
    this.hole = false;
    this.afterGap = false;
    this.behindAt = null;
    this.ackAt = this.unacked > 0 ? now + ACK_DELAY : null;
  }

  /** An event came. A gap that was announced must have been told before. @param {number} seq @param {number} now */
  event(seq, now) {
    if (this.place !== null) {
      if (seq <= this.place) {
        this.counts.duplicates += 1;
        return KNOWN;
      }
      if (seq > this.place + 1) {
        this.counts.out_of_order += 1;
        return this.#openHole();
      }
    }
    this.counts.delivered += 1;
    this.unacked += 1;
    this.afterGap = false;
    this.#moveTo(seq, now);
    return TELL;
  }

  /**
   * Something comes after the confirmation. The gap that is to be told before it, if the confirmation
   * spoke of one and this is not the notice that tells it in more detail.
   * @param {Gap|null} notice @returns {Gap|null}
   */
  untold(notice) {
    if (this.restoredEpoch !== null) {
      this.epoch = this.restoredEpoch;
      this.restoredEpoch = null;
    }
    const gap = this.announced?.gap ?? null;
    return gap && gap.reason === notice?.reason ? null : gap;
  }

  /**
   * A gap is to be told. The position moves past it.
   * @param {Gap} gap @param {number} now
   * @returns {Gap|typeof KNOWN|typeof NEW_HOLE|typeof OLD_HOLE}
   */
  gap(gap, now) {
    const { announced, place } = this;
    this.announced = null;
    let told = gap;
    if (gap.reason === 'evicted' && place !== null) {
      if (gap.to <= place) return KNOWN;
      if (gap.from > place + 1) return this.#openHole();
      const lost = gap.lost && unseen(gap.lost, place);
      told = { ...gap, from: Math.max(gap.from, place + 1), lost };
    }
    this.counts.gaps += 1;
    this.afterGap = true;
    this.#moveTo(told.reason === 'evicted' ? told.to : this.#placeUnknown(announced), now);
    return told;
  }

  /** The position means nothing to the server: it begins with what it holds. @param {{ epoch: string }|null} announced */
  #placeUnknown(announced) {
    if (announced) this.epoch = announced.epoch;
    this.unacked = 0;
    return this.beginsAt === null ? null : Math.max(0, this.beginsAt - 1);
  }

  #openHole() {
    const verdict = this.hole ? OLD_HOLE : NEW_HOLE;
    this.hole = true;
    return verdict;
  }

  /** @param {number|null} place @param {number} now */
  #moveTo(place, now) {
    this.place = place;
    this.beginsAt = null;
    this.hole = false;
    this.ackAt ??= now + ACK_DELAY;
  }

  /** A state came: whether it stands in for the gap just told. */
  stateFillsGap() {
    const fills = this.afterGap;
    this.afterGap = false;
    return fills;
  }

  /**
   * A heartbeat came: the ack that answers it. It reports what did not arrive: an open hole, once more;
   * or, where the server was ahead and nothing came between two heartbeats, the tail.
   * @param {number} head
   */
  heartbeat(head) {
    const last = this.lastSeq();
    const behind = head > last ? last : null;
    const stuck = behind !== null && behind === this.behindAt;
    this.behindAt = behind;
    return this.ack(this.hole || stuck);
  }

  /** When the next ack is due. Between a confirmation and what follows it, the position is one of the past. */
  ackDue() {
    return this.announced === null && this.restoredEpoch === null ? this.ackAt : null;
  }

  /** @param {number} now */
  isAckDue(now) {
    const due = this.ackDue();
    return due !== null && (due <= now || this.unacked >= ACK_EVENTS);
  }

  /** The ack that is due. It stands for everything delivered. @param {boolean} gap_detected @returns {Ack} */
  ack(gap_detected) {
    const received_count = this.unacked;
    this.unacked = 0;
    this.ackAt = null;
    return { last_seq: this.lastSeq(), received_count, gap_detected };
  }
}

/** @type {Gap} */
const UNKNOWN = { reason: 'position_unknown', from: null, to: null, lost: null };

/** @param {Range} range @param {number} place @returns {Range|null} */
function unseen(range, place) {
  const from = Math.max(range.from, place + 1);
  return from <= range.to ? { from, to: range.to } : null;
}
