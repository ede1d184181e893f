//! Claims on issues: one winner of every race, whatever is lost on the way.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use ralph::clock::Clock;
use ralph::github::{Claim, ClaimAttempt, ClaimRecord, Claims, GitHubClient, GitHubCredential, GitHubError};
use ralph::id::{RepositoryName, RunId};
use ralph::secret::{Redactor, Secret};
use rstest::rstest;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::desk::{Desk, REPO, TOKEN, quick};
use crate::need;
use crate::support::fake_github::{Fault, LimitSettings};

const LEASE: SignedDuration = SignedDuration::from_mins(15);

/// How many races there are, unless `RALPH_GITHUB_RACES` says otherwise.
const RACES: u64 = 1000;

/// A clock that differs from this machine's.
struct Shifted(SignedDuration);

impl Clock for Shifted {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.0
    }
}

/// The claims of a process whose clock is ahead by this much.
fn process(desk: &Desk, name: &str, ahead: SignedDuration) -> Claims {
    let credential = GitHubCredential::Token(Secret::new(TOKEN));
    let clock = Arc::new(Shifted(ahead));
    let client = GitHubClient::new(desk.github.url(), credential, clock, Redactor::default(), quick());
    let repository = RepositoryName::parse(REPO).unwrap();
    Claims::new(Arc::new(client.unwrap()), repository, name, LEASE)
}

fn now(desk: &Desk, name: &str) -> Claims {
    process(desk, name, SignedDuration::ZERO)
}

fn unlimited(desk: &Desk) {
    desk.github.set_limits(LimitSettings {
        primary: u32::MAX,
        writes_a_minute: usize::MAX,
        writes_an_hour: usize::MAX,
        ..LimitSettings::default()
    });
}

async fn won(claims: &Claims, issue: u64) -> Claim {
    match claims.claim(issue).await.unwrap() {
        ClaimAttempt::Won(claim) => claim,
        ClaimAttempt::Held(record) => panic!("{record:?}"),
    }
}

async fn held(claims: &Claims, issue: u64) -> ClaimRecord {
    match claims.claim(issue).await.unwrap() {
        ClaimAttempt::Won(claim) => panic!("{claim:?}"),
        ClaimAttempt::Held(record) => record,
    }
}

fn claim_ref(desk: &Desk, issue: u64) -> Option<String> {
    let refs = desk.github.refs(REPO);
    refs.get(&format!("refs/ralph/claims/{issue}")).cloned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_race_has_one_winner() {
    let races = std::env::var("RALPH_GITHUB_RACES").map_or(RACES, |text| text.parse().unwrap());
    let desk = Desk::new().await;
    unlimited(&desk);
    let start = Arc::new(Barrier::new(4));
    let mut processes = JoinSet::new();
    for name in ["a", "b", "c", "d"] {
        let (claims, start) = (now(&desk, name), start.clone());
        processes.spawn(async move {
            let mut won = Vec::new();
            for issue in 1..=races {
                start.wait().await;
                if let ClaimAttempt::Won(claim) = claims.claim(issue).await.unwrap() {
                    won.push(issue);
                    // Every second claim stays; the others are free again after everybody has tried.
                    start.wait().await;
                    if issue % 2 == 0 {
                        claims.release(claim).await.unwrap();
                    }
                } else {
                    start.wait().await;
                }
            }
            won
        });
    }
    let mut winners: Vec<u64> = processes.join_all().await.concat();
    winners.sort_unstable();
    assert_eq!(winners, (1..=races).collect::<Vec<_>>());
    let left = desk.github.refs(REPO);
    let left = left.keys().filter(|name| name.starts_with("refs/ralph/claims/"));
    assert_eq!(left.count() as u64, races.div_ceil(2));
}

/// Four processes find a claim that has ended: one takes it over.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_process_takes_an_ended_claim_over() {
    let desk = Desk::new().await;
    unlimited(&desk);
    for issue in 1..=10 {
        let first = process(&desk, "first", -(LEASE + SignedDuration::from_secs(62)));
        let mut lost = won(&first, issue).await;
        let mut others = JoinSet::new();
        for name in ["a", "b", "c", "d"] {
            let claims = now(&desk, name);
            others.spawn(async move { claims.claim(issue).await.unwrap() });
        }
        let attempts = others.join_all().await;
        let epochs: Vec<u64> = attempts
            .iter()
            .filter_map(|attempt| match attempt {
                ClaimAttempt::Won(claim) => Some(claim.record.epoch),
                ClaimAttempt::Held(_) => None,
            })
            .collect();
        assert_eq!(epochs, [2], "{attempts:?}");
        let taken = claim_ref(&desk, issue);
        let error = first.renew(&mut lost, None).await.unwrap_err();
        assert!(matches!(error, GitHubError::ClaimLost { .. }), "{error:?}");
        // Nor can it delete what is not its own any more.
        first.release(lost).await.unwrap();
        assert_eq!(claim_ref(&desk, issue), taken);
    }
}

#[tokio::test]
async fn a_claim_holds_until_its_end_and_a_margin() {
    let desk = Desk::new().await;
    let first = now(&desk, "first");
    let mut claim = won(&first, 7).await;
    assert_eq!(claim.record.epoch, 1);
    let later = process(&desk, "later", LEASE + SignedDuration::from_secs(30));
    assert_eq!(held(&later, 7).await.owner, claim.record.owner);
    let run = RunId::parse("r23456789").unwrap();
    first.renew(&mut claim, Some(run.clone())).await.unwrap();
    assert_eq!(held(&later, 7).await.run, Some(run));
    assert_eq!(claim.record.epoch, 1);
    first.release(claim).await.unwrap();
    assert_eq!(claim_ref(&desk, 7), None);
    assert_eq!(won(&later, 7).await.record.epoch, 1);
}

#[tokio::test]
async fn claims_follow_the_api() {
    let desk = need!(Desk::validated().await);
    let (first, second) = (now(&desk, "first"), now(&desk, "second"));
    let mut claim = won(&first, 7).await;
    held(&second, 7).await;
    first.renew(&mut claim, None).await.unwrap();
    first.release(claim).await.unwrap();
    won(&second, 7).await;
    desk.expect_clean();
}

/// An answer is lost: the claim is looked up before anything else is done.
#[rstest]
#[case::create("POST", "git/refs")]
#[case::commit("POST", "git/commits")]
#[case::renew("PATCH", "git/refs/ralph%2Fclaims%2F7")]
#[case::delete("DELETE", "git/refs/ralph%2Fclaims%2F7")]
#[tokio::test]
async fn a_lost_answer_changes_nothing(
    #[case] method: &str,
    #[case] path: &str,
    #[values(Fault::DroppedBefore, Fault::DroppedAfter, Fault::ExecutedThenStatus(502))] fault: Fault,
) {
    let desk = Desk::new().await;
    let claims = now(&desk, "first");
    desk.github
        .fail_next(method, &format!("/repos/{REPO}/{path}"), fault);
    let mut claim = won(&claims, 7).await;
    claims.renew(&mut claim, None).await.unwrap();
    held(&now(&desk, "second"), 7).await;
    claims.release(claim).await.unwrap();
    assert_eq!(claim_ref(&desk, 7), None);
    assert_eq!(desk.github.faults_left(), 0);
}

/// The answer to a deletion is lost, and another process claims the issue before the first one looks.
#[tokio::test]
async fn a_repeated_deletion_spares_the_next_claim() {
    let desk = Desk::new().await;
    let (first, second) = (now(&desk, "first"), now(&desk, "second"));
    let claim = won(&first, 7).await;
    let path = format!("/repos/{REPO}/git/refs/ralph%2Fclaims%2F7");
    desk.github
        .fail_next("DELETE", &path, Fault::ExecutedThenStatus(502));
    let release = tokio::spawn(async move { first.release(claim).await });
    let next = loop {
        if let ClaimAttempt::Won(next) = second.claim(7).await.unwrap() {
            break next;
        }
    };
    release.await.unwrap().unwrap();
    let mut next = next;
    second.renew(&mut next, None).await.unwrap();
    assert!(claim_ref(&desk, 7).is_some());
}

#[tokio::test]
async fn a_ref_that_is_no_claim_is_left_alone() {
    let desk = Desk::new().await;
    desk.github
        .git(REPO, &["update-ref", "refs/ralph/claims/7", "refs/heads/main"]);
    let error = now(&desk, "first").claim(7).await.unwrap_err();
    assert!(crate::desk::chain(&error).contains("`refs/ralph/claims/7` is not a claim of ralph"));
}
