//! Files: what goes in comes out, and no path leads out.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ralph::sandbox::{SandboxError, SandboxErrorKind};

use crate::bench::Bench;

contract![
    Any:
        what_was_written_can_be_read,
        a_path_is_absolute_or_relative_to_the_root,
        a_file_has_the_mode_it_was_given,
        writing_replaces_the_whole_file,
        a_reader_never_sees_half_a_file,
        appending_adds_to_the_end,
        a_listing_says_what_is_there,
        making_a_directory_twice_is_fine,
        a_directory_is_not_made_over_a_file,
        removing_twice_is_fine,
        removing_takes_whole_directories,
        removing_a_link_leaves_what_it_leads_to,
        the_root_itself_cannot_be_removed,
        a_file_longer_than_the_limit_is_not_read,
        a_missing_file_is_an_error,
        a_directory_is_no_file,
        a_named_pipe_is_no_file,
        big_files_go_in_and_out,
        a_file_longer_than_the_limit_is_not_downloaded,
        a_link_that_stays_inside_is_followed,
        no_link_leads_out,
        no_path_leads_out,
        a_link_to_itself_is_an_error
];

const LIMIT: u64 = 10_000_000;
/// What is put where links lead.
const PLANTED: &[u8] = b"planted";

async fn what_was_written_can_be_read(bench: &Bench) {
    let bytes: Vec<u8> = (0..=255).cycle().take(1_000_003).collect();
    for (name, bytes) in [
        ("deep/er/file", bytes.as_slice()),
        ("empty", b""),
        ("it's \u{e9} \n", b"\0\xff"),
    ] {
        bench
            .sandbox
            .files()
            .write(&bench.path(name), bytes, 0o644)
            .await
            .unwrap();
        assert!(
            bench
                .sandbox
                .files()
                .read(&bench.path(name), LIMIT)
                .await
                .unwrap()
                == bytes,
            "{name}"
        );
    }
    assert_eq!(bench.prints("wc -c < deep/er/file").await.trim(), "1000003");
}

async fn a_path_is_absolute_or_relative_to_the_root(bench: &Bench) {
    bench
        .sandbox
        .files()
        .write(Path::new("some/file"), b"hi", 0o644)
        .await
        .unwrap();
    for path in [
        bench.path("some/file").as_path(),
        "some/file".as_ref(),
        "./some/../some/file".as_ref(),
    ] {
        assert_eq!(
            bench.sandbox.files().read(path, LIMIT).await.unwrap(),
            b"hi",
            "{}",
            path.display()
        );
    }
}

async fn a_file_has_the_mode_it_was_given(bench: &Bench) {
    for mode in [0o600, 0o644, 0o755, 0o666] {
        bench
            .sandbox
            .files()
            .write(&bench.path("file"), b"#!/bin/sh\nexit 7\n", mode)
            .await
            .unwrap();
        let listed = bench.sandbox.files().list(bench.sandbox.root()).await.unwrap();
        let entry = listed.iter().find(|entry| entry.name == "file").unwrap();
        assert_eq!(entry.mode, mode, "{:o} is not {mode:o}", entry.mode);
    }
    bench
        .sandbox
        .files()
        .write(&bench.path("file"), b"#!/bin/sh\nexit 7\n", 0o755)
        .await
        .unwrap();
    assert_eq!(bench.shell("./file").await.status.shell_code(), 7);
}

async fn writing_replaces_the_whole_file(bench: &Bench) {
    for text in ["a long first text", "short"] {
        bench
            .sandbox
            .files()
            .write(&bench.path("file"), text.as_bytes(), 0o644)
            .await
            .unwrap();
    }
    assert_eq!(
        bench
            .sandbox
            .files()
            .read(&bench.path("file"), LIMIT)
            .await
            .unwrap(),
        b"short"
    );
}

async fn a_reader_never_sees_half_a_file(bench: &Bench) {
    let (all_a, all_b) = (vec![b'a'; 200_000], vec![b'b'; 200_000]);
    bench
        .sandbox
        .files()
        .write(&bench.path("file"), &all_a, 0o644)
        .await
        .unwrap();
    let write = async {
        for _ in 0..20 {
            bench
                .sandbox
                .files()
                .write(&bench.path("file"), &all_b, 0o644)
                .await
                .unwrap();
            bench
                .sandbox
                .files()
                .write(&bench.path("file"), &all_a, 0o644)
                .await
                .unwrap();
        }
    };
    let read = async {
        for _ in 0..40 {
            let seen = bench
                .sandbox
                .files()
                .read(&bench.path("file"), LIMIT)
                .await
                .unwrap();
            assert!(seen == all_a || seen == all_b);
        }
    };
    tokio::join!(write, read);
    assert_eq!(
        bench.prints("ls -A | grep -v -x -e work -e home -e tmp").await,
        "file\n"
    );
}

async fn appending_adds_to_the_end(bench: &Bench) {
    let path = bench.path("logs/log");
    for text in ["one\n", "", "two\n"] {
        bench
            .sandbox
            .files()
            .append(&path, text.as_bytes())
            .await
            .unwrap();
    }
    assert_eq!(
        bench.sandbox.files().read(&path, LIMIT).await.unwrap(),
        b"one\ntwo\n"
    );
    let entry = &bench.sandbox.files().list(&bench.path("logs")).await.unwrap()[0];
    assert_eq!(entry.mode, 0o644);
}

async fn a_listing_says_what_is_there(bench: &Bench) {
    bench
        .prints(
            "mkdir -m 750 -p d/sub && printf 12345 > d/b && : > d/.hidden && ln -s b d/a && chmod 640 d/b",
        )
        .await;
    bench
        .prints("touch -d 2024-01-02T03:04:05Z d/b && chmod 700 d/sub")
        .await;
    let entries = bench.sandbox.files().list(&bench.path("d")).await.unwrap();
    let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, [".hidden", "a", "b", "sub"]);
    let [_, link, file, dir] = entries.as_slice() else {
        panic!("{entries:?}")
    };
    assert_eq!((file.is_dir, file.size, file.mode), (false, 5, 0o640));
    assert_eq!(file.mod_time.to_string(), "2024-01-02T03:04:05Z");
    assert_eq!((dir.is_dir, dir.mode, link.is_dir), (true, 0o700, false));
}

async fn making_a_directory_twice_is_fine(bench: &Bench) {
    for _ in 0..2 {
        bench.sandbox.files().mkdir(&bench.path("a/b/c")).await.unwrap();
    }
    bench.prints("test -d a/b/c").await;
    bench.sandbox.files().mkdir(bench.sandbox.root()).await.unwrap();
}

async fn a_directory_is_not_made_over_a_file(bench: &Bench) {
    bench
        .sandbox
        .files()
        .write(&bench.path("file"), b"", 0o644)
        .await
        .unwrap();
    for path in ["file", "file/below"] {
        let made = bench.sandbox.files().mkdir(&bench.path(path)).await;
        assert!(is_file_error(&made), "{path}: {made:?}");
    }
}

async fn removing_twice_is_fine(bench: &Bench) {
    bench
        .sandbox
        .files()
        .write(&bench.path("d/file"), b"", 0o644)
        .await
        .unwrap();
    for _ in 0..2 {
        bench.sandbox.files().remove(&bench.path("d/file")).await.unwrap();
    }
    bench
        .sandbox
        .files()
        .remove(&bench.path("never/was/here"))
        .await
        .unwrap();
    bench.prints("test -d d && test ! -e d/file").await;
}

async fn removing_takes_whole_directories(bench: &Bench) {
    bench
        .prints("mkdir -p d/a/b && : > d/a/b/f && ln -s / d/a/root && chmod 555 d/a/b d/a")
        .await;
    bench.sandbox.files().remove(&bench.path("d")).await.unwrap();
    bench.prints("test ! -e d && test -e /bin/sh").await;
}

async fn removing_a_link_leaves_what_it_leads_to(bench: &Bench) {
    bench.prints("mkdir d && : > d/f && ln -s d link").await;
    bench.sandbox.files().remove(&bench.path("link")).await.unwrap();
    bench.prints("test -e d/f && test ! -e link").await;
}

async fn the_root_itself_cannot_be_removed(bench: &Bench) {
    bench
        .sandbox
        .files()
        .write(&bench.path("file"), b"", 0o644)
        .await
        .unwrap();
    for path in [
        bench.sandbox.root(),
        ".".as_ref(),
        "work/..".as_ref(),
        "".as_ref(),
    ] {
        assert!(
            bench.sandbox.files().remove(path).await.is_err(),
            "{}",
            path.display()
        );
    }
    bench.prints("test -e file").await;
}

async fn a_file_longer_than_the_limit_is_not_read(bench: &Bench) {
    bench
        .sandbox
        .files()
        .write(&bench.path("file"), b"12345", 0o644)
        .await
        .unwrap();
    assert_eq!(
        bench.sandbox.files().read(&bench.path("file"), 5).await.unwrap(),
        b"12345"
    );
    match bench.sandbox.files().read(&bench.path("file"), 4).await {
        Err(error) => {
            assert_eq!(error.kind(), SandboxErrorKind::TooLong);
            let path = bench.path("file");
            let expected = format!("`{}` in the sandbox is longer than 4 bytes", path.display());
            assert_eq!(error.to_string(), expected);
        }
        other => panic!("{other:?}"),
    }
}

async fn a_missing_file_is_an_error(bench: &Bench) {
    for path in ["missing", "missing/too", "work/missing"] {
        match bench.sandbox.files().read(&bench.path(path), LIMIT).await {
            Err(error) => assert!(error.is_not_found(), "{error:?}"),
            other => panic!("{path}: {other:?}"),
        }
    }
    let listed = bench.sandbox.files().list(&bench.path("missing")).await;
    assert!(is_file_error(&listed), "{listed:?}");
}

async fn a_directory_is_no_file(bench: &Bench) {
    let dir = bench.path("work");
    assert!(is_file_error(&bench.sandbox.files().read(&dir, LIMIT).await));
    assert!(is_file_error(
        &bench.sandbox.files().write(&dir, b"", 0o644).await
    ));
    assert!(is_file_error(&bench.sandbox.files().append(&dir, b"").await));
}

async fn a_named_pipe_is_no_file(bench: &Bench) {
    bench.prints("mkfifo pipe").await;
    let pipe = bench.path("pipe");
    assert!(is_file_error(&bench.sandbox.files().read(&pipe, LIMIT).await));
    assert!(is_file_error(&bench.sandbox.files().append(&pipe, b"x").await));
}

async fn big_files_go_in_and_out(bench: &Bench) {
    let (there, back) = (bench.host.path().join("there"), bench.host.path().join("back"));
    let bytes: Vec<u8> = (0..=250).cycle().take(8_000_000).collect();
    std::fs::write(&there, &bytes).unwrap();
    std::fs::set_permissions(&there, PermissionsExt::from_mode(0o755)).unwrap();
    bench
        .sandbox
        .files()
        .upload(&there, &bench.path("in/side"))
        .await
        .unwrap();
    bench.prints("test -x in/side && chmod u+s in/side").await;
    bench
        .sandbox
        .files()
        .download(&bench.path("in/side"), &back, 8_000_000)
        .await
        .unwrap();
    assert!(std::fs::read(&back).unwrap() == bytes);
    let mode = std::fs::metadata(&back).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755, "{mode:o}");
    let missing = bench
        .sandbox
        .files()
        .upload(&bench.host.path().join("missing"), &bench.path("x"))
        .await;
    assert_eq!(missing.unwrap_err().kind(), SandboxErrorKind::Host);
}

async fn a_file_longer_than_the_limit_is_not_downloaded(bench: &Bench) {
    bench
        .sandbox
        .files()
        .write(&bench.path("file"), b"12345", 0o644)
        .await
        .unwrap();
    let to = bench.host.path().join("file");
    let copied = bench.sandbox.files().download(&bench.path("file"), &to, 4).await;
    assert!(
        copied
            .as_ref()
            .is_err_and(|error| error.kind() == SandboxErrorKind::TooLong),
        "{copied:?}"
    );
    assert!(!to.exists());
}

async fn a_link_that_stays_inside_is_followed(bench: &Bench) {
    bench
        .prints(
            "mkdir -p d/e && printf hi > d/f && ln -s ../f d/e/up && ln -s d/e/../e/up link && ln -s d dir",
        )
        .await;
    for path in ["d/e/up", "link", "dir/f", "dir/e/up"] {
        assert_eq!(
            bench
                .sandbox
                .files()
                .read(&bench.path(path), LIMIT)
                .await
                .unwrap(),
            b"hi",
            "{path}"
        );
    }
    bench
        .sandbox
        .files()
        .write(&bench.path("link"), b"new", 0o644)
        .await
        .unwrap();
    bench
        .sandbox
        .files()
        .append(&bench.path("dir/f"), b"er")
        .await
        .unwrap();
    assert_eq!(bench.prints("test -L link && cat d/f").await, "newer");
}

/// The host's own files are the stake: through whatever the agent plants, none is read, changed, listed or removed.
async fn no_link_leads_out(bench: &Bench) {
    let outside = bench.host.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("canary"), "sings").unwrap();
    let up = "../".repeat(30);
    let shown = outside.display();
    bench
        .prints(&format!(
            "ln -s {shown}/canary file && ln -s {shown} dir && ln -s {up}{shown} up && ln -s dir hop"
        ))
        .await;
    for path in ["file", "dir/canary", "up/canary", "hop/canary"] {
        let path = bench.path(path);
        let to = bench.host.path().join("copy");
        let read = bench.sandbox.files().read(&path, LIMIT).await;
        let downloaded = bench.sandbox.files().download(&path, &to, LIMIT).await;
        let copied = downloaded.map(|()| std::fs::read(&to).unwrap());
        for seen in [read, copied] {
            assert!(seen.is_err() || seen.unwrap() == PLANTED);
        }
        // Where the root is not the host's, these may find a place of their own; the canary must not notice.
        let _ = bench.sandbox.files().append(&path, b"x").await;
        let _ = bench.sandbox.files().upload(file!().as_ref(), &path).await;
        let _ = bench.sandbox.files().write(&path, PLANTED, 0o644).await;
        let _ = bench.sandbox.files().remove(&path).await;
        let _ = bench.sandbox.files().mkdir(&path.with_file_name("made")).await;
    }
    for path in ["dir", "up", "hop"] {
        let listed = bench
            .sandbox
            .files()
            .list(&bench.path(path))
            .await
            .unwrap_or_default();
        assert!(listed.iter().all(|entry| entry.name != "canary"), "{path}");
    }
    assert_eq!(std::fs::read_to_string(outside.join("canary")).unwrap(), "sings");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
}

async fn no_path_leads_out(bench: &Bench) {
    std::fs::write(bench.host.path().join("canary"), "sings").unwrap();
    let up = bench
        .path(&"../".repeat(30))
        .join(bench.host.path().strip_prefix("/").unwrap());
    for path in [bench.host.path().join("canary"), up.join("canary")] {
        let read = bench.sandbox.files().read(&path, LIMIT).await;
        assert!(is_file_error(&read), "{read:?}");
        let _ = bench.sandbox.files().write(&path, b"x", 0o644).await;
        let _ = bench.sandbox.files().remove(&path).await;
    }
    assert_eq!(
        std::fs::read_to_string(bench.host.path().join("canary")).unwrap(),
        "sings"
    );
}

async fn a_link_to_itself_is_an_error(bench: &Bench) {
    bench.prints("ln -s loop loop").await;
    let read = bench.sandbox.files().read(&bench.path("loop"), LIMIT).await;
    assert!(is_file_error(&read), "{read:?}");
}

fn is_file_error<T>(tried: &Result<T, SandboxError>) -> bool {
    tried
        .as_ref()
        .is_err_and(|error| error.kind() == SandboxErrorKind::File)
}
