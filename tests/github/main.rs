//! The forge `github` and everything else that talks to GitHub, on a whole fake of it behind Prism, which checks every request
//! and every answer against GitHub's own document.
//!
//! Traps of GitHub, and the tests that go through them. `traps::every_trap_has_its_tests` reads this table.
//!
//! | trap | tests |
//! |---|---|
//! | 1. a second pull request after a lost answer, and branches of forks | `forge::a_lost_answer_makes_no_second_pull_request`, `forge::other_lost_answers_are_harmless`, `forge::the_branch_is_looked_up_with_its_owner` |
//! | 2. answers from before the last write | `forge::a_branch_that_rest_does_not_see_yet_is_waited_for`, `forge::a_branch_that_never_appears_is_an_error` |
//! | 3. the longest text | `forge::a_long_text_is_cut_below_the_limit`, `issues::a_long_comment_is_cut_below_the_limit` |
//! | 4. secondary limits | `forge::a_secondary_limit_is_waited_out`, `forge::a_push_waits_for_a_limit`, `forge::a_limit_of_graphql_is_waited_out`, `claims::a_claim_waits_for_a_limit`, `forge::many_runs_with_one_account_stay_below_the_limits`, `traps::no_call_is_made_during_a_pause`, `poll::looking_at_issues_that_do_not_change_is_free` |
//! | 5. times of JWTs and of installation tokens | `forge::an_app_pushes_and_opens_a_pull_request`, `traps::a_run_outlives_the_tokens_of_an_app`, `traps::an_app_replaces_a_token_that_ended_early`, `claims::claims_of_an_app_get_another_token`, `traps::an_app_that_was_installed_again_needs_its_new_number` |
//! | 6. tokens in arguments, addresses, files and other hosts | `forge::a_token_leaves_no_trace_in_the_repository`, `traps::no_token_is_in_a_process_list`, `traps::no_token_of_a_claim_is_in_a_process_list`, `runs::a_run_ends_in_a_pull_request` |
//! | 7. workflow files without their permission | `forge::a_workflow_file_without_its_permission_is_refused_with_its_name` |
//! | 8. what checks and statuses mean | `ci::a_conclusion_passes_or_fails`, `ci::a_check_of_another_suite_hides_no_failure`, `ci::a_commit_without_checks_is_done_after_the_settle_time` |
//! | 9. logs of jobs | `ci::a_failure_has_the_end_of_its_log` |
//! | 10. a base branch that is deleted or squashed | `stacks::a_base_branch_that_goes_does_not_take_the_child_with_it`, `stacks::an_update_moves_the_child_before_the_base_goes`, `stacks::a_deleted_base_branch_closes_the_child_until_it_is_restored`, `stacks::a_squashed_base_needs_a_person_who_gets_the_command` |
//! | 11. compare-and-swap of refs | `claims::every_race_has_one_winner`, `claims::a_claim_that_is_renewed_after_its_end_is_not_removed`, `forge::a_commit_of_a_person_is_never_overwritten`, `forge::a_branch_of_ours_is_moved_back` |
//! | 12. labels, and pull requests among issues | `traps::labels_are_changed_one_by_one`, `poll::an_issue_needs_nine_writes`, `traps::a_pull_request_is_no_issue`, `forge::what_a_person_changed_stays` |
//! | 13. words of strangers | `issues::words_of_strangers_are_not_worked_on`, `reviews::words_of_strangers_reach_nothing` |
//! | 14. renamed and archived repositories, rulesets | `forge::what_cannot_work_is_refused_before_the_run`, `forge::a_renamed_repository_is_followed` |
//! | 15. merge queues and auto-merge | `traps::ralph_never_merges`, `traps::no_code_can_merge`, `forge::a_pull_request_that_a_person_ended_is_not_opened_again` |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    missing_docs,
    unreachable_pub,
    reason = "tests inspect the host and panic on the first failure"
)]

mod ci;
mod claims;
mod desk;
mod enterprise;
mod forge;
mod issues;
mod notes;
mod poll;
mod reviews;
mod runs;
mod serve;
mod stacks;
mod statuses;
mod takeover;
mod traps;

use ::support::{self, need};
