//! `ralph image build` where something is wrong: one message, what to do next, and nothing under our tag.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::process::Command;

use ralph::exec::Discard;
use rstest::rstest;
use serde_json::Value;

use super::project::{Built, COPYING, Project, THIN};
use super::support::ralph::{Live, Place, eventually, finish};
use super::support::skip::program;
use crate::need;

/// A mistake in a file of `.agent-loop/`, and what is said of it.
#[rstest]
#[case::no_argument(
    "Dockerfile.sandbox",
    "FROM ${BASE_IMAGE}\n",
    &["invalid Dockerfile `", "Dockerfile.sandbox`: line 1", "start the file with `ARG BASE_IMAGE`"]
)]
#[case::other_base("Dockerfile.sandbox", "ARG BASE_IMAGE\nFROM debian\n", &["line 2: the last stage starts from `debian`"])]
#[case::bad_name("dependencies", "jq\nJQ!\n", &["dependencies`: line 2: invalid package `JQ!`", "one Debian package per line"])]
#[case::shell("dependencies", "jq; rm -rf /\n", &["line 1: invalid package `jq; rm -rf /`"])]
#[case::option("dependencies", "\t--allow-downgrades\r\n", &["line 1: invalid package `--allow-downgrades`"])]
#[case::ignore("Dockerfile.sandbox", COPYING, &[".dockerignore`: line 1"])]
fn a_mistake_of_the_project_is_reported_with_its_line(
    #[case] name: &str,
    #[case] text: &str,
    #[case] said: &[&str],
) {
    let place = Place::new();
    place.write(&format!(".agent-loop/{name}"), text);
    place.write(".agent-loop/.dockerignore", "[a-\n");
    let ended = finish(&mut without_engine(&place, &["--dry-run"]));
    ended.expect_refused(said);
}

#[test]
fn ten_thousand_packages_with_tabs_and_carriage_returns_are_planned() {
    let place = Place::new();
    let lines = (0..10_000).map(|number| format!("\tlib{number}-dev \t# number {number}\r\n"));
    place.write(".agent-loop/dependencies", &lines.collect::<String>());
    let ended = finish(&mut without_engine(&place, &["--dry-run", "--json"]));
    assert_eq!(
        Built::of(&ended, "steps").steps,
        ["pull-base", "build-base", "build-project"]
    );
}

#[test]
fn a_dry_run_shows_the_dockerfiles_if_asked() {
    let place = Place::new();
    place.write(".agent-loop/dependencies", "libpq-dev=15.*\n");
    let shown = finish(&mut without_engine(&place, &["--dry-run", "-v"]));
    let json = finish(&mut without_engine(&place, &["--dry-run", "-v", "--json"]));
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    let [base, project] = [0, 1].map(|number| &json["dockerfiles"][number]);
    assert_eq!((&project["tag"], &project["base"]), (&json["tag"], &base["tag"]));
    for (dockerfile, argument, part) in [
        (base, String::new(), "useradd --create-home"),
        (
            project,
            format!(", with BASE_IMAGE={}", base["tag"].as_str().unwrap()),
            "    'libpq-dev=15.*' \\\n",
        ),
    ] {
        let (tag, text) = (
            dockerfile["tag"].as_str().unwrap(),
            dockerfile["text"].as_str().unwrap(),
        );
        assert!(text.contains(part), "{text}");
        let expected = format!("\nDockerfile of {tag}{argument}:\n\n{text}");
        assert!(
            shown.stdout.contains(&expected),
            "{expected:?} is not in {shown:?}"
        );
    }
    let plan = finish(&mut without_engine(&place, &["--dry-run"]));
    assert!(
        !plan.stdout.contains("FROM") && shown.stdout.starts_with(plan.stdout.trim_end()),
        "{plan:?}"
    );
    finish(&mut without_engine(&place, &["-v"])).expect_refused(&["--dry-run"]);
}

#[test]
fn a_project_of_any_name_gets_a_tag() {
    let place = Place::bare();
    let project = place.path().join("My App!");
    fs::create_dir_all(project.join(".git")).unwrap();
    fs::create_dir(project.join(".agent-loop")).unwrap();
    fs::write(project.join(".agent-loop/dependencies"), "jq").unwrap();
    let mut command = without_engine(&place, &["--agent", "actions", "--dry-run", "--json"]);
    let planned = Built::of(&finish(command.current_dir(project)), "steps");
    let tag = &planned.tag;
    assert!(tag.starts_with("agent-loop-sandbox-actions-my-app:v"), "{tag}");
}

#[test]
fn without_an_engine_a_plan_is_shown_and_a_build_says_what_to_do() {
    let place = Place::new();
    let planned = finish(&mut without_engine(&place, &["--dry-run"]));
    planned.expect(
        0,
        &["warning: cannot reach a container engine (tried unix:///nowhere.sock)"],
    );
    assert!(planned.stdout.contains("(unresolved)"), "{planned:?}");
    let built = finish(&mut without_engine(&place, &[]));
    let expected = [
        "ralph: cannot reach a container engine (tried unix:///nowhere.sock)\n",
        "\nhint: start Docker or podman",
    ];
    assert_eq!(built.expect(1, &expected).stdout, "");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_refuses_this_user_is_reported_as_such() {
    let project = need!(Project::new().await);
    let command = project.command(&[]);
    need!(as_other_user(&project.place, &command).map(|mut refused| {
        let said = "permission denied for the container engine at";
        finish(&mut refused).expect(1, &[said, "hint: add your user to the group `docker`"]);
    }));
    project.close().await;
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_can_be_left_out() {
    let place = Place::new();
    place.write(".agent-loop/Dockerfile.sandbox", COPYING);
    place.write(".agent-loop/secret", "no user reads this");
    let secret = place.repo().join(".agent-loop/secret");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o000)).unwrap();
    let command = without_engine(&place, &["--dry-run"]);
    let mut unprivileged = need!(as_other_user(&place, &command));
    finish(&mut unprivileged).expect(
        1,
        &["cannot read", ".agent-loop/secret", "hint: ", ".dockerignore"],
    );
    place.write(".agent-loop/.dockerignore", "secret\n");
    finish(&mut unprivileged).expect(0, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn links_in_circles_are_sent_as_they_are_and_sockets_not_at_all() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", &format!("{COPYING}COPY . /all/\n"));
    project.write("greeting", "hello");
    let dir = project.place.repo().join(".agent-loop");
    symlink("there", dir.join("here")).unwrap();
    symlink("here", dir.join("there")).unwrap();
    symlink("..", dir.join("up")).unwrap();
    let _listener = UnixListener::bind(dir.join("socket")).unwrap();
    let built = project.build(&[]);
    let listed = project.run(&built.tag, &["/bin/sh", "-c", "cd /all; echo *"]);
    assert_eq!(listed, "Dockerfile.sandbox greeting here there up\n");
    project.close().await;
}

// rustix cannot make a named pipe on macOS.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_pipe_in_the_context_is_refused() {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    let pipe = project.place.repo().join(".agent-loop/pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::RUSR).unwrap();
    project.try_build(&[]).expect_refused(&[
        ".agent-loop/pipe` is a named pipe, which a build context cannot contain",
        "hint: if the image does not need it",
    ]);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_base_is_reported_as_such() {
    let project = need!(Project::new().await);
    let missing = project.base("missing");
    project.configure(&missing, "");
    let ended = project.try_build(&[]);
    let said = format!("ralph: cannot reach the registry of {missing}");
    ended.expect(
        1,
        &[
            &said,
            "hint: check the network",
            "`image.base`",
            "`sandbox.image`",
        ],
    );
    assert_eq!(ended.stdout, "");
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_fails_shows_its_log_once_and_leaves_no_image() {
    let project = need!(Project::new().await);
    let failing =
        "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN [\"/bin/sh\", \"-c\", \"echo the reason; exit 7\"]\n";
    project.write("Dockerfile.sandbox", failing);
    let planned = project.plan(&[]);
    let ended = project.try_build(&[]);
    let said = format!("ralph: the build of {} failed (log: ", planned.tag);
    ended.expect(1, &[&said, "the reason", "hint: "]);
    let after = ended.stderr.split(&said).nth(1).unwrap();
    assert_eq!(
        after.lines().count(),
        3,
        "more than the log's name, a hint and a link: {ended:?}"
    );
    let shown = ended.stderr.split("(log: ").nth(1).unwrap();
    let log = fs::read_to_string(shown.split(")\n").next().unwrap()).unwrap();
    assert!(log.contains("the reason"), "{log}");
    assert_eq!(project.id(&planned.tag).await, None);
    assert_eq!(project.plan(&[]).steps, ["build-project"]);
    project.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_in_a_build_says_what_is_kept() {
    let project = need!(Project::new().await);
    let waiting = r#"RUN ["/bin/sh", "-c", "echo started here; exec /bin/busybox sleep 600"]"#;
    project.write("Dockerfile.sandbox", &format!("{THIN}{waiting}\n"));
    let planned = project.plan(&[]);
    let log = format!("cache/images/logs/{}.log", planned.tag.replace(':', "-"));
    let log = project.place.home().join(log);
    let build = Live::start(&mut project.command(&["--dockerfile", "thin/Dockerfile"]));
    eventually("the build waits", || {
        let text = fs::read_to_string(&log).unwrap_or_default();
        text.lines().any(|line| line.ends_with("started here"))
    });
    build.signal("INT");
    let ended = build.wait();
    ended.expect(
        130,
        &[
            "ralph: interrupted\n",
            "\nhint: complete images and build steps are kept",
        ],
    );
    assert_eq!(ended.stdout, "");
    assert_eq!(project.id(&planned.tag).await, None);
    assert_eq!(project.plan(&[]).steps, ["build-project"]);
    project.close().await;
}

/// What was hashed is what is sent, or nothing is.
#[rstest]
#[case::other_content("others")]
#[case::less("")]
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_changes_before_it_is_sent_stops_the_build(#[case] text: &str) {
    let project = need!(Project::new().await);
    project.write("Dockerfile.sandbox", COPYING);
    project.write("greeting", "hashed");
    let builder = project.builder();
    let recipe = builder.read(&project.request()).await.unwrap();
    let planned = builder.plan(&recipe).await.unwrap();
    project.write("greeting", text);
    let error = builder.ensure(&recipe, &mut Discard).await.unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "`greeting` changed while the image was being built");
    assert_eq!(project.id(&planned.image.tag.to_string()).await, None);
    project.close().await;
}

/// `ralph image build` in a repository, where no engine is.
fn without_engine(place: &Place, args: &[&str]) -> Command {
    let mut command = place.ralph(&["image", "build"]);
    command.env("DOCKER_HOST", "unix:///nowhere.sock").args(args);
    command
}

/// The same command, started as a user who may do nothing special: with a copy of the binary that this user can read.
fn as_other_user(place: &Place, command: &Command) -> Result<Command, String> {
    let setpriv = program("setpriv")?;
    if !rustix::process::geteuid().is_root() {
        return Err("only root can start a program as another user".to_owned());
    }
    let binary = place.path().join("ralph-for-other-user");
    fs::copy(command.get_program(), &binary).unwrap();
    for dir in [place.path().to_owned(), place.home(), place.path().join("home")] {
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let mut other = Command::new(setpriv);
    other
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(binary)
        .args(command.get_args())
        .current_dir(place.repo())
        .env_clear();
    other.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    Ok(other)
}
