//! What an agent could put into its clone to reach the host.

use std::os::unix::fs::PermissionsExt;

use ralph::scm::bundle::BundleError;
use ralph::scm::{HandBackRefusal, NameProblem};
use ralph::secret::Redactor;
use rstest::rstest;

use super::*;

/// Puts a commit on the clone's branch whose tree has these entries, `mode type id<TAB>name`, added at its top.
///
/// `git mktree` and `git commit-tree` check no names, so that anything can be made.
fn commit_entries(clone: &PrivateClone<'_>, entries: &[Vec<u8>]) -> ObjectId {
    let dir = clone.dir();
    let mut listing = git(dir, &["ls-tree", "-z", "HEAD"]).into_bytes();
    for entry in entries {
        listing.extend_from_slice(entry);
        listing.push(0);
    }
    let tree = git_with_input(dir, &["mktree", "-z", "--missing"], &listing);
    let commit = git(dir, &["commit-tree", "-p", "HEAD", "-m", "hostile", tree.trim()]);
    git(dir, &["update-ref", "HEAD", commit.trim()]);
    id(commit.trim())
}

fn blob(clone: &PrivateClone<'_>, text: &str) -> String {
    git_with_input(clone.dir(), &["hash-object", "-w", "--stdin"], text.as_bytes())
        .trim()
        .to_owned()
}

fn entry(mode: &str, kind: &str, id: &str, name: &[u8]) -> Vec<u8> {
    [format!("{mode} {kind} {id}\t").as_bytes(), name].concat()
}

/// The user's repository is as it was: same refs and files, nothing broken, the refused commit not in it.
async fn nothing_arrived(world: &World, before: &str, commit: &ObjectId) {
    assert_eq!(world.untouched(), before);
    assert!(world.repository.resolve(commit.as_str()).await.is_err());
    world.fsck();
}

#[rstest]
#[case::plain(b".git")]
#[case::upper(b".GIT")]
#[case::ntfs(b"git~1")]
#[case::ntfs_dots(b".git...")]
#[case::ntfs_stream(b".git::$INDEX_ALLOCATION")]
#[case::hfs(".g\u{200d}it".as_bytes())]
#[case::dotdot(b"..")]
#[case::dot(b".")]
#[tokio::test]
async fn a_tree_with_a_name_that_means_something_else_is_refused(#[case] name: &[u8]) {
    let world = World::new().await;
    let clone = world.plant().await;
    let before = world.untouched();
    let hook = blob(&clone, "#!/bin/sh\n");
    let config = git_with_input(
        clone.dir(),
        &["mktree"],
        format!("100755 blob {hook}\tconfig\n").as_bytes(),
    );
    let commit = commit_entries(&clone, &[entry("040000", "tree", config.trim(), name)]);
    let error = tip_only(&world, &clone, &commit).await.unwrap_err();
    let refused = matches!(
        &error,
        ScmError::Refused(
            HandBackRefusal::Objects(_)
                | HandBackRefusal::Name {
                    problem: NameProblem::DotGit | NameProblem::Traversal,
                    ..
                }
        )
    );
    assert!(refused, "{error:?}");
    nothing_arrived(&world, &before, &commit).await;
}

/// Brings back a tip that git would not check out: the working directory shows the commit below it.
async fn tip_only(world: &World, clone: &PrivateClone<'_>, commit: &ObjectId) -> Result<HandBack, ScmError> {
    git(clone.dir(), &["update-ref", "HEAD", world.base.as_str()]);
    let mut snapshot = clone.snapshot().await?;
    git(clone.dir(), &["update-ref", "HEAD", commit.as_str()]);
    snapshot.tip = commit.clone();
    let request = HandBackRequest {
        base: &world.base,
        snapshot: &snapshot,
        known: &[],
        limit: 1024 * 1024,
        redactor: &Redactor::default(),
    };
    hand_back(&world.repository, clone, &request, &world.dir.path().join("run")).await
}

#[rstest]
#[case::case("README", "Readme")]
#[case::against_what_is_there("A.TXT", "b.txt")]
#[case::unicode("caf\u{e9}", "cafe\u{301}")]
#[tokio::test]
async fn names_that_are_one_file_elsewhere_are_refused(#[case] one: &str, #[case] other: &str) {
    let world = World::new().await;
    let clone = world.plant().await;
    let before = world.untouched();
    write(clone.dir(), one, "1");
    write(clone.dir(), other, "2");
    let commit = clone.commit("collide", &[]).await.unwrap().unwrap();
    let error = world.take(&clone, &[]).await.unwrap_err();
    assert!(
        matches!(error, ScmError::Refused(HandBackRefusal::Collision { .. })),
        "{error:?}"
    );
    nothing_arrived(&world, &before, &commit).await;
}

#[tokio::test]
async fn a_collision_that_the_user_already_has_is_no_obstacle() {
    let world = World::with(&[("x/File", "1"), ("x/file", "2")]).await;
    let clone = world.plant().await;
    write(clone.dir(), "x/new", "3");
    clone.commit("beside", &[]).await.unwrap();
    world.take(&clone, &[]).await.unwrap();
}

#[tokio::test]
async fn a_bad_name_that_a_later_commit_removes_is_refused_too() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "A.txt", "x");
    clone.commit("collide", &[]).await.unwrap().unwrap();
    std::fs::remove_file(clone.dir().join("A.txt")).unwrap();
    clone.commit("hide it", &[]).await.unwrap().unwrap();
    let error = world.take(&clone, &[]).await.unwrap_err();
    assert!(
        matches!(error, ScmError::Refused(HandBackRefusal::Collision { .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn odd_but_harmless_names_come_back_as_they_are() {
    let world = World::new().await;
    let clone = world.plant().await;
    let text = blob(&clone, "odd\n");
    let names: [&[u8]; 5] = [
        b"new\nline",
        b"\"quoted\"",
        b"not utf-8 \xff\xfe",
        b"-rf",
        b"\x1b[31mred",
    ];
    let entries: Vec<Vec<u8>> = names
        .iter()
        .map(|name| entry("100644", "blob", &text, name))
        .collect();
    commit_entries(&clone, &entries);
    git(clone.dir(), &["reset", "--quiet", "--hard"]);
    let back = world.take(&clone, &[]).await.unwrap();
    let listed = git(&world.user(), &["ls-tree", "--name-only", back.tip.as_str()]);
    assert_eq!(listed.lines().count(), 2 + names.len(), "{listed}");
    world.fsck();
}

#[tokio::test]
async fn settings_and_hooks_of_the_clone_never_run_on_the_host() {
    let world = World::new().await;
    let clone = world.plant().await;
    let (dir, trace) = (clone.dir(), world.dir.path().join("trace"));
    let script = world.sandbox_root().join("evil");
    std::fs::write(
        &script,
        format!("#!/bin/sh\necho \"$GIT_DIR $PWD $*\" >> '{}'\n", trace.display()),
    )
    .unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let evil = script.display().to_string();
    let hooks = dir.join(".git/hooks");
    std::fs::create_dir_all(&hooks).unwrap();
    for hook in [
        "post-checkout",
        "reference-transaction",
        "pre-receive",
        "post-update",
        "pre-auto-gc",
        "post-index-change",
    ] {
        std::fs::copy(&script, hooks.join(hook)).unwrap();
    }
    for (name, value) in [
        ("core.hooksPath", hooks.to_str().unwrap()),
        ("core.fsmonitor", &evil),
        ("core.pager", &evil),
        ("core.sshCommand", &evil),
        ("diff.external", &evil),
        ("uploadpack.packObjectsHook", &evil),
        ("gpg.program", &evil),
        ("commit.gpgSign", "true"),
        ("credential.helper", &evil),
    ] {
        git(dir, &["config", name, value]);
    }
    write(dir, "a.txt", "changed\n");
    let _ = std::fs::remove_file(&trace);
    clone.commit("x", &[]).await.unwrap().unwrap();
    write(dir, "draft", "x\n");
    let snapshot = clone.snapshot().await.unwrap();
    clone.diff(&world.base, &snapshot.tree).await.unwrap();
    world.take(&clone, &[]).await.unwrap();
    assert!(!trace.exists(), "{}", std::fs::read_to_string(&trace).unwrap());
}

#[tokio::test]
async fn a_filter_of_the_clone_runs_in_the_sandbox_and_not_on_the_host() {
    let world = World::new().await;
    let clone = world.plant().await;
    let trace = world.dir.path().join("trace");
    git(
        clone.dir(),
        &[
            "config",
            "filter.evil.clean",
            &format!("echo \"$GIT_DIR:$PWD\" >> '{}'; cat", trace.display()),
        ],
    );
    write(clone.dir(), ".gitattributes", "* filter=evil\n");
    write(clone.dir(), "a.txt", "changed\n");
    let snapshot = clone.snapshot().await.unwrap();
    let in_sandbox = std::fs::read_to_string(&trace).unwrap();
    let request = HandBackRequest {
        base: &world.base,
        snapshot: &snapshot,
        known: &[],
        limit: 1024 * 1024,
        redactor: &Redactor::default(),
    };
    let back = hand_back(&world.repository, &clone, &request, &world.dir.path().join("run"))
        .await
        .unwrap();
    assert_eq!(
        std::fs::read_to_string(&trace).unwrap(),
        in_sandbox,
        "nothing ran while it was taken"
    );
    let flags = world.flags(&back).await;
    assert_eq!(flags.len(), 1, "{flags:?}");
}

type Change = fn(&[u8]) -> Vec<u8>;

fn cut(bundle: &[u8]) -> Vec<u8> {
    bundle[..bundle.len() - 30].to_vec()
}

fn cut_in_header(bundle: &[u8]) -> Vec<u8> {
    bundle[..60].to_vec()
}

fn flip(bundle: &[u8]) -> Vec<u8> {
    let mut bundle = bundle.to_vec();
    let at = bundle.len() - 40;
    bundle[at] ^= 0xff;
    bundle
}

fn too_long(bundle: &[u8]) -> Vec<u8> {
    let mut bundle = bundle.to_vec();
    bundle.resize(1024 * 1024 + 1, 0);
    bundle
}

fn nothing(_: &[u8]) -> Vec<u8> {
    Vec::new()
}

fn no_prerequisites(bundle: &[u8]) -> Vec<u8> {
    let at = bundle
        .windows(6)
        .position(|window| window == b"\n\nPACK")
        .unwrap();
    let header = String::from_utf8(bundle[..at].to_vec()).unwrap();
    let kept: Vec<&str> = header.lines().filter(|line| !line.starts_with('-')).collect();
    [kept.join("\n").as_bytes(), &bundle[at..]].concat()
}

fn unknown_prerequisite(bundle: &[u8]) -> Vec<u8> {
    let line = format!("-{} x\n", "a".repeat(40));
    let at = bundle.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    [&bundle[..at], line.as_bytes(), &bundle[at..]].concat()
}

#[rstest]
#[case::truncated(cut, |refusal: &HandBackRefusal| matches!(refusal, HandBackRefusal::Objects(_)))]
#[case::truncated_header(cut_in_header, |refusal: &HandBackRefusal| matches!(refusal, HandBackRefusal::Bundle(BundleError::Truncated)))]
#[case::damaged(flip, |refusal: &HandBackRefusal| matches!(refusal, HandBackRefusal::Objects(_)))]
#[case::oversized(too_long, |refusal: &HandBackRefusal| matches!(refusal, HandBackRefusal::TooLong { .. }))]
#[case::empty(nothing, |refusal: &HandBackRefusal| matches!(refusal, HandBackRefusal::Bundle(BundleError::Truncated)))]
#[case::unknown_base(unknown_prerequisite, |refusal: &HandBackRefusal| matches!(refusal, HandBackRefusal::Bundle(BundleError::UnknownPrerequisite(_))))]
#[tokio::test]
async fn a_bundle_that_is_not_whole_is_refused(
    #[case] change: Change,
    #[case] expected: fn(&HandBackRefusal) -> bool,
) {
    let world = World::new().await;
    let clone = world.plant().await;
    let before = world.untouched();
    write(clone.dir(), "new.txt", "something\n");
    let commit = clone.commit("new", &[]).await.unwrap().unwrap();
    *world.sandbox.on_download.lock().unwrap() = Some(Box::new(change));
    let error = world.take(&clone, &[]).await.unwrap_err();
    assert!(
        matches!(&error, ScmError::Refused(refusal) if expected(refusal)),
        "{error:?}"
    );
    nothing_arrived(&world, &before, &commit).await;
}

#[tokio::test]
async fn what_a_bundle_claims_to_build_on_decides_nothing() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "new.txt", "something\n");
    clone.commit("new", &[]).await.unwrap().unwrap();
    *world.sandbox.on_download.lock().unwrap() = Some(Box::new(no_prerequisites));
    world.take(&clone, &[]).await.unwrap();
    world.fsck();
}

#[tokio::test]
async fn another_commit_than_the_snapshot_saw_is_refused() {
    let world = World::new().await;
    let clone = world.plant().await;
    write(clone.dir(), "new.txt", "something\n");
    let snapshot = clone.snapshot().await.unwrap();
    let other = git(
        clone.dir(),
        &["commit-tree", "-p", "HEAD", "-m", "swapped", "HEAD^{tree}"],
    );
    git(clone.dir(), &["update-ref", "refs/ralph/work", other.trim()]);
    let request = HandBackRequest {
        base: &world.base,
        snapshot: &snapshot,
        known: &[],
        limit: 1024 * 1024,
        redactor: &Redactor::default(),
    };
    let error = hand_back(&world.repository, &clone, &request, &world.dir.path().join("run"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            ScmError::Refused(HandBackRefusal::Bundle(BundleError::WrongTip { .. }))
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_pack_that_lacks_objects_is_refused() {
    let world = World::new().await;
    let clone = world.plant().await;
    let before = world.untouched();
    write(clone.dir(), "new.txt", "the file that goes missing\n");
    let commit = clone.commit("new", &[]).await.unwrap().unwrap();
    // A bundle with the right header around a pack that holds the commit and its tree, not the file.
    let tree = git(clone.dir(), &["rev-parse", "HEAD^{tree}"]);
    let pack = std::process::Command::new("sh")
        .current_dir(clone.dir())
        .args([
            "-c",
            "printf '%s\\n' \"$1\" \"$2\" | git pack-objects --stdout -q",
            "sh",
            commit.as_str(),
            tree.trim(),
        ])
        .output()
        .unwrap()
        .stdout;
    *world.sandbox.on_download.lock().unwrap() = Some(Box::new(move |bundle: &[u8]| {
        let at = bundle
            .windows(6)
            .position(|window| window == b"\n\nPACK")
            .unwrap()
            + 2;
        [&bundle[..at], &pack].concat()
    }));
    let error = world.take(&clone, &[]).await.unwrap_err();
    assert!(
        matches!(error, ScmError::Refused(HandBackRefusal::Objects(_))),
        "{error:?}"
    );
    nothing_arrived(&world, &before, &commit).await;
}

#[tokio::test]
async fn a_clone_of_another_repository_is_refused() {
    let world = World::new().await;
    let other = World::with(&[("foreign", &"x\n".repeat(500))]).await;
    let foreign = other.plant().await;
    write(foreign.dir(), "foreign", &"y\n".repeat(500));
    foreign.commit("thin against an unknown base", &[]).await.unwrap();
    let error = world.take(&foreign, &[]).await.unwrap_err();
    assert!(
        matches!(error, ScmError::Refused(HandBackRefusal::Rewritten { .. })),
        "{error:?}"
    );
    world.fsck();
}
