//! A repository on GitHub, as an agent in a sandbox reaches it.

use std::path::PathBuf;

use rstest::rstest;

use crate::bench::Within;
use crate::container::Container;
use crate::need;
use crate::support::github::{GitHubServer, TOKEN};
use crate::support::ralph::{Ended, Place, commit, ending, finish, run, script, write};
use crate::traces::files_with;

/// What the agent finds, a line each.
const LOOK: &str = r#"
git ls-remote --heads SERVER/acme/widget.git | sed 's/.*refs/fetched: refs/'
git push --quiet SERVER/acme/widget.git HEAD:refs/heads/more 2>&1 | sed -n 's/^remote: .*: /pushing: /p'
ask() { curl --silent --header "Authorization: Bearer $GITHUB_TOKEN" "$GITHUB_API_URL/repos/$1"; echo; }
ask "$GITHUB_REPOSITORY" | sed 's/^/own: /'
ask acme/secret | sed 's/.*: /another: /'
"#;

const FOUND: &str = "\
fetched: refs/heads/main
pushing: acme/widget is read-only; ralph publishes the work itself
own: {\"full_name\":\"acme/widget\",\"private\":true}
another: the credential is only for acme/widget\"}
";

/// Runs a task in which the agent looks around.
fn look(place: &Place, server: &GitHubServer, sandbox: &str, docker: Option<&Container>) -> Ended {
    place.write(
        "ralph.toml",
        &format!(
            "[agent]\nname = \"actions\"\n{sandbox}\
             [sandbox.github]\nrepository = \"acme/widget\"\nurl = \"{0}\"\napi_url = \"{0}\"\n",
            server.url
        ),
    );
    let look = LOOK.replace("SERVER", &server.url);
    let answer = ending([
        write("look.sh", &look),
        run("sh look.sh > a.txt; echo hello >> a.txt; echo hello > b.txt"),
        commit("Look around"),
    ]);
    let mut command = place.scripted(&script([answer]), &[]);
    if let Some(container) = docker {
        command.env("DOCKER_HOST", container.engine.endpoint().to_string());
    }
    finish(command.env("GITHUB_PAT", TOKEN))
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_reads_one_repository_with_a_credential_that_it_never_has(
    #[values(Within::Directory, Within::Sealed)] within: Within,
) {
    let container = match within {
        Within::Sealed => Some(need!(Container::new().await)),
        Within::Directory | Within::Container => None,
    };
    let sandbox = match &container {
        Some(container) => container.sealed(),
        None => "[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n".to_owned(),
    };
    let (place, server) = (Place::new(), GitHubServer::start().await);
    let ended = look(&place, &server, &sandbox, container.as_ref());
    ended.expect(0, &["done: "]);
    let branch = place.status()["branch"].as_str().unwrap().to_owned();
    let found = place.git(&["show", &format!("{branch}:a.txt")]);
    assert_eq!(found, format!("{FOUND}hello\n"));
    assert_eq!(server.branches(), "* main");
    assert_eq!(files_with(&place.home(), TOKEN), Vec::<PathBuf>::new());
}

#[test]
fn a_repository_without_a_token_is_refused() {
    let place = Place::new();
    place.write("ralph.toml", "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"local\"\n[sandbox.network]\npolicy = \"allow-all\"\n[sandbox.github]\nrepository = \"acme/widget\"\n");
    place.run(&["run"]).expect_refused(&[
        "`GITHUB_PAT` is not set",
        "hint: a token that can read that repository",
    ]);
}

#[tokio::test]
async fn a_repository_without_a_gateway_is_refused() {
    let place = Place::new();
    place.write("ralph.toml", "[agent]\nname = \"actions\"\n[sandbox]\ntype = \"docker\"\nimage = \"none\"\n[sandbox.network]\npolicy = \"allow-all\"\n[sandbox.github]\nrepository = \"acme/widget\"\n");
    let container = need!(Container::new().await);
    let mut command = place.ralph(&["run"]);
    command.env("DOCKER_HOST", container.engine.endpoint().to_string());
    finish(command.env("GITHUB_PAT", TOKEN)).expect_refused(&[
        "`sandbox.github` needs a gateway",
        "hint: use `type = \"docker\"`",
    ]);
}
