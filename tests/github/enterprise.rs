//! GitHub Enterprise: REST below `/api/v3`, GraphQL at `/api/graphql`, and older versions of both.

use std::sync::Arc;

use ralph::clock;
use ralph::github::{GitHubClient, GitHubCredential, GitHubForge, Reviews};
use ralph::id::RepositoryName;
use ralph::scm::{Forge, PullRequest};
use ralph::secret::{Redactor, Secret};
use rstest::rstest;

use crate::desk::{Desk, REPO, TOKEN, quick};
use crate::runs::Site;
use crate::support::fake_github::{FakeGitHub, Role};
use crate::support::ralph::{script, whole_task};

const VERSION: &str = "2026-03-10";

fn client(desk: &Desk) -> Arc<GitHubClient> {
    let api = format!("{}/api/v3", desk.github.url());
    let credential = GitHubCredential::Token(Secret::new(TOKEN));
    let client = GitHubClient::new(&api, credential, clock::system(), Redactor::default(), quick());
    Arc::new(client.unwrap())
}

/// The version of the API is named only where the server lists it: others refuse it.
#[rstest]
#[case::listed(&["2022-11-28", VERSION], true)]
#[case::older(&["2022-11-28"], false)]
#[tokio::test]
async fn a_version_is_named_only_where_the_server_lists_it(
    #[case] versions: &[&'static str],
    #[case] is_named: bool,
) {
    let desk = Desk::new().await;
    desk.github.become_enterprise(versions);
    let name = RepositoryName::parse(REPO).unwrap();
    let (git, url) = (desk.repository.clone(), desk.github.url());
    let forge = GitHubForge::new(client(&desk), name, url, git, Redactor::default());
    forge.check(&desk.planned()).await.unwrap();
    let draft = PullRequest {
        draft: true,
        is_done: false,
        ..desk.request(0)
    };
    forge.open(&draft).await.unwrap();
    forge.open(&desk.request(1)).await.unwrap();
    desk.expect_one_pull(1);
    assert!(!desk.github.pulls(REPO)[0].draft);
    assert_eq!(desk.count("POST /api/graphql"), 1);
    let requests = desk.github.requests();
    let api = requests
        .iter()
        .filter(|request| request.path.starts_with("/api/v3/repos/"));
    let named: Vec<bool> = api
        .map(|request| {
            let version = request
                .headers
                .iter()
                .find(|(name, _)| name == "x-github-api-version");
            version.is_some_and(|(_, version)| version == VERSION)
        })
        .collect();
    assert!(
        named.len() > 3 && named.iter().all(|named| *named == is_named),
        "{named:?}"
    );
    assert!(
        requests
            .iter()
            .all(|request| request.status != 404 || !request.path.contains("there-is"))
    );
}

/// Old servers have other names for the numbers of comments in GraphQL.
#[tokio::test]
async fn resolved_threads_of_an_old_server_are_left_out() {
    let desk = Desk::new().await;
    desk.forge().open(&desk.request(0)).await.unwrap();
    desk.github.add_collaborator(REPO, "ada", Role::Write);
    let review = desk
        .github
        .review_as("ada", REPO, 1, "CHANGES_REQUESTED", "Not yet.");
    let comment = |text: &str| desk.github.review_comment_as("ada", REPO, review, "one", 1, text);
    let (resolved, open) = (comment("Louder."), comment("Shorter."));
    desk.github.resolve_thread(REPO, resolved);
    desk.github.become_enterprise(&["2022-11-28"]);
    let reviews = Reviews::new(client(&desk), RepositoryName::parse(REPO).unwrap());
    let found = reviews.comments(1, |_| false).await.unwrap();
    let threads: Vec<u64> = found
        .comments
        .iter()
        .filter_map(ralph::scm::ReviewComment::thread)
        .collect();
    assert_eq!(threads, [open]);
}

/// A whole run.
#[test]
fn a_run_ends_in_a_pull_request_on_github_enterprise() {
    let mut site = Site::new(FakeGitHub::start());
    site.github.become_enterprise(&["2022-11-28"]);
    let api = format!("{}/api/v3", site.github.url());
    site.credential.push(("RALPH_FORGE__GITHUB__API_URL", api));
    site.set_task("pr:\n  labels: [ralph]\n");
    site.run(&script([whole_task()]))
        .expect(0, &["done: ", "/acme/widget/pull/1"]);
    site.expect_one_pull();
    site.expect_no_secret(&["CANARY"]);
}
