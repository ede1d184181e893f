//! Keychains: a whole fake of macOS's program, and the real Secret Service.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use ralph::credential::{Credential, CredentialLocation, Keychain, Vault};
use ralph::exec::Host;
use ralph::secret::Secret;

use crate::need;
use crate::support::ralph::{Place as Home, finish};
use crate::support::skip;

/// Does what `security` does with the three commands that are used, and writes down its arguments.
const SECURITY: &str = r#"#!/bin/sh
echo "$*" >>"$STORE/arguments"
find() { while [ $# -gt 0 ]; do case $1 in -a) name=$2; shift;; -X) hex=$2; shift;; esac; shift; done; }
case $1 in
  -i) read -r line; set -- $line; find "$@"
      printf "$(printf %s "$hex" | sed 's/../\\x&/g')" >"$STORE/$name" ;;
  find-generic-password) find "$@"; [ -e "$STORE/$name" ] || { echo "could not be found" >&2; exit 44; }; cat "$STORE/$name"; echo ;;
  delete-generic-password) find "$@"; [ -e "$STORE/$name" ] || exit 44; rm "$STORE/$name" ;;
  *) exit 2 ;;
esac
"#;

#[tokio::test]
async fn a_keychain_never_sees_a_secret_as_an_argument() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("security");
    // `printf` of some shells knows no \x; bash's does.
    std::fs::write(&program, SECURITY.replace("#!/bin/sh", "#!/usr/bin/env bash")).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap());
    let env = [
        ("PATH".to_owned(), path),
        ("STORE".to_owned(), dir.path().display().to_string()),
    ];
    let files = dir.path().join("credentials");
    let vault = Vault::in_files(&files).with_keychain(Keychain::MacOs, Host::new(BTreeMap::from(env)));
    keeps_in_one_place(&vault).await;
    let arguments = std::fs::read_to_string(dir.path().join("arguments")).unwrap();
    assert!(
        !arguments.contains("CANARY") && arguments.contains("-i"),
        "{arguments}"
    );
}

#[tokio::test]
async fn a_secret_that_security_would_cut_off_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let vault = Vault::in_files(dir.path()).with_keychain(Keychain::MacOs, Host::new(BTreeMap::new()));
    let kind = ralph::model::GATEWAY_KEY;
    let long = Credential::new(Secret::new("x".repeat(4000)));
    let refused = vault
        .store(kind, &long, vault.default_location())
        .await
        .unwrap_err();
    let message = refused.to_string();
    assert!(message.contains("too many for the macOS keychain"), "{message}");
    assert!(
        refused
            .hint()
            .is_some_and(|hint| hint.contains("ralph token store --file"))
    );
    let short = Credential::new(Secret::new("x".repeat(500)));
    let refused = vault.store(kind, &short, vault.default_location()).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("cannot start `security`"), "{message}");
}

/// What every vault with a keychain must do.
async fn keeps_in_one_place(vault: &Vault) {
    let kind = ralph::model::GATEWAY_KEY;
    let key = |text: &str| Credential::new(Secret::new(text));
    assert!(vault.load(kind).await.unwrap().is_none());
    for (value, place) in [
        ("CANARY-1-\"quoted\"", vault.default_location()),
        ("CANARY-2", CredentialLocation::File),
        ("CANARY-3", vault.default_location()),
    ] {
        vault.store(kind, &key(value), place).await.unwrap();
        let (kept, found) = vault.load(kind).await.unwrap().unwrap();
        assert_eq!((kept.token.expose(), found), (value, place));
        assert_eq!(vault.file(kind).exists(), place == CredentialLocation::File);
    }
}

/// The real Secret Service, with a keyring and a session bus of its own.
#[test]
fn the_secret_service_keeps_a_credential() {
    for program in ["dbus-run-session", "gnome-keyring-daemon", "secret-tool"] {
        need!(skip::program(program));
    }
    let home = Home::new();
    let script = format!(
        "printf '\\n' | gnome-keyring-daemon --unlock --components=secrets >/dev/null 2>&1
         ralph={}
         printf %s CANARY-0123456789 | $ralph token store --auth gateway || exit 1
         $ralph token check --auth gateway || exit 1
         $ralph token get --auth gateway",
        env!("CARGO_BIN_EXE_ralph")
    );
    let mut command = home.ralph(&[]);
    let runtime = tempfile::tempdir().unwrap();
    let mut session = std::process::Command::new("dbus-run-session");
    session.args(["--", "sh", "-c", &script]).env_clear();
    session.envs(
        command
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    session
        .env("XDG_RUNTIME_DIR", runtime.path())
        .current_dir(home.repo());
    command.stdin(std::process::Stdio::null());
    let ended = finish(&mut session);
    ended.expect(0, &["in the Secret Service"]);
    assert!(ended.stdout.ends_with("CANARY-0123456789\n"), "{ended:?}");
    assert!(!home.home().join("credentials/gateway-key.json").exists());
}
