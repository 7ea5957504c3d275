//! The behaviours that every store has: one set of cases, run against any store.
//!
//! A store is tested by naming it once. A failing case names the behaviour that is missing:
//!
//! ```
//! use std::sync::Arc;
//! use rejoin_store::{MemoryStore, Store, suite};
//!
//! async fn memory() -> Arc<dyn Store> {
//!     Arc::new(MemoryStore::new(suite::BOUNDS, suite::AUDIT_MAX))
//! }
//!
//! rejoin_store::store_suite!(memory);
//! # fn main() {}
//! ```
//!
//! A store that outlives its process implements [`Reopen`] instead and says
//! `durable_store_suite!(Home)`: the same cases, and those of `reopen` in addition.
//!
//! Both make `#[tokio::test]`s on the multi-threaded runtime, so the crate that uses them needs
//! `tokio` with `macros` and `rt-multi-thread`.
#![allow(clippy::unwrap_used, reason = "these are tests, they only live in the library")]
#![allow(missing_docs, reason = "the name of a case is its claim")]

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rejoin_core::limits::LogBounds;
use rejoin_core::state::Recovery;

use crate::Store;

mod append;
mod attempts;
mod audit;
mod changes;
mod client;
mod concurrency;
mod due;
mod inbox;
mod lease;
mod lifecycle;
mod listing;
mod ownership;
mod read;
mod reopen;
mod reopen_trail;
mod restore;
mod results;
mod room;
mod tokens;
mod world;

pub use world::World;

/// The bounds of the out logs of a store under test.
pub const BOUNDS: LogBounds =
    LogBounds { events: 8, bytes: 4 * 1024, retention: MINUTE, result_retention: MINUTE };

const MINUTE: Duration = Duration::from_secs(60);

/// How many audit records a store under test keeps.
pub const AUDIT_MAX: usize = 8;

/// Where a durable store lives: what is left of it when its process dies.
pub trait Reopen: Sized + Send + Sync + 'static {
    /// An empty place, which lasts as long as this value.
    fn new() -> impl Future<Output = Self> + Send;

    /// Opens what is there, with [`BOUNDS`] and [`AUDIT_MAX`]. The store that was open before has been
    /// dropped without `close`, as in a crash: whatever it acknowledged must be there.
    fn open(&self, recovery: Recovery) -> impl Future<Output = Arc<dyn Store>> + Send;
}

/// Makes the two macros from the list of all cases. A case that is written but not listed is an
/// unreachable `pub`, which the compiler points out.
macro_rules! suite {
    (
        ($dollar:tt)
        every_store { $($file:ident { $($case:ident,)* })* }
        durable_stores { $($durable_file:ident { $($durable_case:ident,)* })* }
    ) => {
        #[doc(hidden)]
        pub mod cases {
            $(pub mod $file { pub use super::super::$file::{$($case),*}; })*
            $(pub mod $durable_file { pub use super::super::$durable_file::{$($durable_case),*}; })*
        }

        /// Makes a test of every case for the stores that a factory makes: `store_suite!(factory)`,
        /// where `factory().await` is an empty `Arc<dyn Store>` with `suite::BOUNDS` and
        /// `suite::AUDIT_MAX`.
        #[macro_export]
        macro_rules! store_suite {
            ($dollar factory:expr) => {
                $crate::__store_suite!($crate::suite::World::new(($dollar factory)().await));
            };
        }

        /// Makes a test of every case, also of those about crashes, for a store whose home implements
        /// `suite::Reopen`: `durable_store_suite!(Home)`.
        #[macro_export]
        macro_rules! durable_store_suite {
            ($dollar home:ty) => {
                $crate::__store_suite!($crate::suite::World::durable::<$dollar home>().await);
                $(mod $durable_file {
                    #[allow(unused_imports)]
                    use super::*;
                    $(#[tokio::test(flavor = "multi_thread")]
                    async fn $durable_case() {
                        let world = $crate::suite::World::durable::<$dollar home>().await;
                        $crate::suite::cases::$durable_file::$durable_case(world).await;
                    })*
                })*
            };
        }

        #[doc(hidden)]
        #[macro_export]
        macro_rules! __store_suite {
            ($dollar world:expr) => {
                $(mod $file {
                    #[allow(unused_imports)]
                    use super::*;
                    $(#[tokio::test(flavor = "multi_thread")]
                    async fn $case() {
                        $crate::suite::cases::$file::$case($dollar world).await;
                    })*
                })*
            };
        }
    };
}

suite! {
    ($)
    every_store {
        append {
            events_are_numbered_from_one_without_holes,
            several_events_in_one_append_keep_their_order,
            sessions_are_numbered_apart,
            events_carry_the_time_they_were_appended_at,
            append_anywhere_but_at_the_head_is_refused,
            append_of_a_fenced_term_is_refused_with_its_state,
            append_of_a_term_that_nobody_has_yet_is_refused,
            append_to_an_ended_session_is_refused,
            append_to_an_unknown_session_finds_nothing,
            event_state_and_cover_are_stored_together,
            event_state_and_cover_of_a_refused_append_are_all_left_out,
            a_state_needs_no_event,
            what_was_appended_under_a_key_is_not_appended_again,
            something_else_under_the_same_key_is_refused,
            a_later_state_replaces_the_one_before,
            events_without_a_state_leave_the_last_one_alone,
        }
        lease {
            the_first_holder_gets_term_one,
            the_holder_keeps_its_term_and_extends_its_lease,
            another_process_waits_until_the_lease_has_run_out,
            a_lease_that_was_given_up_is_free_under_the_next_term,
            giving_up_an_older_term_does_nothing,
            attaching_does_not_change_the_term,
            an_ended_session_has_no_lease,
        }
        read {
            reading_starts_after_the_position_and_ends_at_the_head,
            an_unknown_session_has_nothing_to_read,
            a_page_ends_at_its_count,
            a_page_ends_before_it_is_over_its_bytes,
            a_large_event_is_read_alone_whatever_the_limit,
            a_page_comes_with_the_record_it_belongs_to,
            reading_behind_the_oldest_event_starts_there_and_shows_the_gap,
            the_log_keeps_to_its_count,
            the_log_keeps_to_its_bytes,
            an_event_over_the_bound_is_kept_alone,
            acked_events_go_when_their_retention_has_passed,
            covered_events_go_when_their_retention_has_passed,
            events_that_nobody_acked_or_covered_do_not_grow_old,
            numbering_goes_on_when_every_event_is_gone,
            bodies_come_back_as_they_were_given,
        }
        results {
            a_result_outlives_what_passes_by,
            kept_results_count_against_the_bounds_and_are_counted_as_held,
            a_page_of_results_ends_at_its_limits,
            events_of_an_mcp_session_grow_old_though_nobody_acks_them,
        }
        changes {
            each_change_that_readers_see_is_told,
            a_change_whose_caller_has_gone_is_told,
            what_happened_before_one_waits_is_not_missed,
            messages_are_told_to_those_who_ask_for_them,
            who_waits_learns_that_the_store_was_closed,
        }
        client {
            attaching_raises_the_generation_by_one,
            the_later_client_supersedes_the_one_before,
            coming_back_is_counted_and_coming_first_is_not,
            nobody_attaches_to_the_session_of_another,
            a_foreign_session_says_nothing_else_of_itself,
            where_the_later_does_not_win_it_is_refused_without_a_token,
            where_the_later_does_not_win_a_token_lets_it_in,
            an_ended_session_is_not_attached_to,
            a_session_whose_time_has_run_out_is_not_attached_to,
            an_attached_session_does_not_run_out_of_time,
            going_parks_the_session_and_sets_its_deadline,
            a_client_that_was_replaced_parks_nothing_when_it_goes,
            acks_only_grow,
            an_ack_of_what_was_never_sent_is_refused,
            an_ack_of_a_client_that_was_replaced_does_nothing,
            acks_stay_when_the_client_comes_back,
        }
        tokens {
            a_token_attaches_and_another_follows_it,
            a_token_used_again_at_once_gets_the_same_answer,
            a_token_used_again_later_revokes_all,
            a_token_used_again_after_its_successor_revokes_all,
            a_session_goes_on_with_new_tokens_after_all_were_revoked,
            a_token_of_another_session_is_unknown,
            an_unknown_token_is_named_before_the_end_of_the_session,
            the_end_of_the_session_is_named_before_the_reuse_of_a_token,
            at_most_four_tokens_are_good_and_the_oldest_goes,
            no_token_is_given_for_a_session_that_is_over,
            renewing_extends_a_session_and_attaches_nothing,
            renewing_never_shortens_a_life_and_supersedes_nobody,
            renewing_needs_the_owner_and_a_living_session,
            a_token_reused_to_renew_revokes_all,
            of_twenty_uses_at_once_all_get_the_same_answer_and_one_counts,
            the_tokens_of_a_session_can_be_looked_at,
        }
        inbox {
            messages_are_numbered_from_one_and_come_back_in_order,
            entries_are_read_after_a_position_and_up_to_a_limit,
            the_same_message_sent_again_is_entered_once,
            the_same_id_with_other_content_is_refused,
            messages_without_an_id_are_always_new,
            message_ids_belong_to_their_session,
            a_message_of_a_client_that_was_replaced_is_refused,
            an_ended_session_takes_no_messages,
            a_message_gives_a_parked_session_more_time_and_never_less,
            a_thousand_messages_may_wait_and_the_next_is_refused,
            messages_wait_up_to_a_number_of_bytes,
            a_single_message_over_the_bytes_is_taken_when_none_waits,
            covered_entries_are_gone_and_covering_only_grows,
            an_entry_that_is_answered_before_an_older_one_is_gone,
            entries_behind_one_that_waits_for_long_do_not_fill_the_log,
            covering_beyond_the_last_entry_stops_there,
            messages_that_are_dealt_with_can_be_read_within_the_bounds,
            messages_of_an_mcp_session_are_not_kept,
            messages_come_in_pages,
            messages_come_back_as_they_were_given,
        }
        listing {
            a_new_session_is_as_it_was_made,
            whatever_is_said_about_a_session_is_kept,
            an_id_is_taken_once,
            sessions_that_go_on_are_counted,
            sessions_are_listed_in_the_order_of_their_ids,
            a_listing_goes_on_after_the_last_id_of_a_page,
            sessions_are_listed_by_principal,
            ended_sessions_are_listed_unless_only_active_ones_are_asked_for,
        }
        lifecycle {
            ending_deletes_the_logs_and_the_state_and_remembers_the_rest,
            a_session_ends_once,
            a_clean_up_leaves_a_session_alone_that_a_client_came_back_to,
            a_session_that_expires_does_so_only_when_its_time_has_come,
            keeping_sets_the_deadline_of_a_parked_session,
            a_session_goes_on_only_in_one_that_is_active,
            keeping_an_older_generation_does_nothing,
            a_session_is_forgotten_only_after_its_time,
            a_session_that_goes_on_is_not_forgotten,
            a_session_may_be_kept_for_ever,
            a_closed_store_refuses_every_call,
        }
        due {
            nothing_is_due_in_an_empty_store,
            sessions_are_due_soonest_first,
            the_moment_of_the_deadline_counts,
            a_full_page_says_when_the_next_one_is_due,
            sessions_due_at_the_same_time_are_all_listed,
            an_attached_session_is_never_due,
            keeping_and_messages_move_the_deadline,
            an_ended_session_is_due_when_it_may_be_forgotten,
            what_is_due_comes_with_its_record,
            a_restore_leaves_the_old_session_to_be_forgotten,
        }
        restore {
            a_living_session_hands_all_it_has_to_the_new_one,
            the_old_session_ends_and_says_where_it_goes_on,
            a_session_whose_time_ran_out_unnoticed_hands_over_what_it_has,
            an_older_snapshot_does_not_undo_the_state_that_is_held,
            a_newer_snapshot_replaces_the_state_that_is_held,
            a_snapshot_beyond_a_living_log_takes_no_event_out_of_it,
            the_same_snapshot_again_comes_back_to_the_same_session,
            snapshots_of_one_line_meet_in_its_last_session,
            a_session_that_was_closed_is_not_brought_back,
            a_closed_session_is_not_brought_back_once_it_was_forgotten,
            a_snapshot_before_a_forgotten_successor_is_not_brought_back,
            a_session_whose_successor_was_closed_is_not_brought_back,
            a_session_whose_successor_has_gone_is_not_brought_back,
            an_expired_session_is_made_anew_from_the_sealed_state,
            an_expired_session_is_numbered_on_from_where_it_was,
            an_expired_session_still_knows_the_messages_that_were_dealt_with,
            an_unknown_session_is_made_from_the_sealed_state_once,
            what_the_client_has_seen_is_not_numbered_again,
            a_claim_that_can_not_be_true_is_refused,
        }
        ownership {
            a_session_of_another_principal_is_not_restored,
            a_session_of_another_kind_is_not_restored,
            a_line_that_leads_to_another_principal_is_not_followed,
            a_snapshot_of_another_store_leaves_the_session_that_has_its_id_alone,
            a_snapshot_of_a_session_whose_id_was_used_again_leaves_the_later_one_alone,
            a_snapshot_of_another_store_is_remembered_under_its_own_id_where_that_is_free,
            a_restore_says_whether_it_made_a_session_and_which_it_replaces,
            a_snapshot_of_a_future_that_was_lost_takes_no_newer_message_along,
            a_session_whose_future_was_lost_says_so_to_later_snapshots,
        }
        audit {
            the_trail_is_read_newest_first,
            audit_records_come_back_as_they_were_written,
            every_reason_can_be_written_down,
            the_trail_is_read_page_by_page,
            a_page_of_the_trail_ends_early_where_its_records_are_large,
            a_page_that_ends_with_the_trail_has_no_next,
            the_trail_of_one_session_is_read_alone,
            the_trail_keeps_to_its_bound_and_loses_the_oldest,
            the_trail_of_a_forgotten_session_stays,
        }
        attempts {
            the_use_of_a_token_is_in_the_trail,
            the_revocation_by_a_reused_token_is_in_the_trail,
            a_refusal_that_changes_nothing_is_not_in_the_trail,
            a_restore_is_in_the_trail_if_it_makes_a_session,
            no_caller_pushes_anothers_records_out_of_the_trail,
        }
        room {
            of_many_made_at_once_as_many_are_as_there_is_room_for,
            there_is_a_bound_for_all_and_one_for_each_principal,
            a_session_that_ends_makes_room,
            going_on_from_a_session_that_is_gone_needs_room,
        }
        concurrency {
            readers_see_no_holes_and_only_what_is_acknowledged,
            of_two_appends_at_the_same_seq_one_wins,
            readers_never_see_an_event_without_its_state,
            clients_that_attach_at_once_get_different_generations,
            of_many_that_make_one_session_one_does,
            of_many_that_send_one_message_one_enters_it,
            messages_that_one_caller_sends_at_once_keep_their_order,
            a_number_that_is_told_early_is_the_one_that_is_answered,
            of_many_processes_one_gets_the_lease,
            snapshots_restored_at_once_meet_in_one_session,
        }
    }
    durable_stores {
        reopen {
            acknowledged_events_are_there_and_are_numbered_on_from,
            what_was_acknowledged_before_the_work_was_cut_off_is_there,
            message_ids_forgotten_at_expiry_stay_forgotten_after_a_crash,
            idempotency_keys_forgotten_at_expiry_stay_forgotten_after_a_crash,
            results_that_were_let_go_stay_gone_after_a_crash,
            kept_results_are_there_after_a_crash,
            what_was_evicted_leaves_no_hole,
            acks_may_be_lost_but_not_the_events_behind_them,
            closing_keeps_acks,
            event_state_and_cover_come_back_together,
            what_was_answered_out_of_order_does_not_come_back,
            an_agent_that_named_an_entry_is_known_to_name_them,
            idempotency_keys_are_still_known,
            messages_are_still_known,
            messages_that_are_dealt_with_can_still_be_read,
            an_attached_session_comes_back_parked_under_its_generation,
            leases_are_void_and_the_next_holder_gets_the_next_term,
            nothing_expires_in_the_first_minute,
            whoever_asks_first_learns_whose_clients_were_attached,
            a_deadline_of_a_clock_that_ran_ahead_is_brought_back,
            a_token_is_still_good_once,
            the_reuse_of_a_token_stays_noticed,
            ended_sessions_stay_ended_and_forgotten_ones_forgotten,
            a_closed_session_that_was_forgotten_is_not_brought_back_after_a_crash,
            a_restored_line_stays_one,
            a_store_is_the_same_one_when_it_is_opened_again,
            the_audit_trail_is_there,
        }
        reopen_trail {
            a_record_is_there_after_a_crash_as_what_it_is_about,
            the_largest_share_of_the_trail_gives_way_after_a_crash_too,
            room_is_counted_on_from_what_a_crash_left,
        }
    }
}
