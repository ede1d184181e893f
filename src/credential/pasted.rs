//! Parses a credential that a user pastes: a token, a key, or the credentials file of `claude` or `codex`.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use thiserror::Error;

use super::{Credential, CredentialKind, RefreshToken};
use crate::model::{ANTHROPIC_LOGIN, CredentialRecord, OPENAI_KEY};
use crate::secret::Secret;

const REFRESH_PREFIX: &str = "sk-ant-ort01-";
/// The lifetime of a token from `claude setup-token`.
const SETUP_TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// The length of a setup token. Lines that a terminal wrapped are joined up to this length.
const SETUP_TOKEN_LENGTH: usize = 108;
/// No service has shorter credentials.
const MIN_LENGTH: usize = 8;

/// Parses a credential of this kind. Errors never contain the text.
pub fn parse(kind: CredentialKind, text: &str, now: Timestamp) -> Result<Credential, MalformedCredential> {
    let text = text.trim();
    if text.starts_with('{') && kind == ANTHROPIC_LOGIN {
        return parse_claude_file(text);
    }
    if text.starts_with('{') && kind == OPENAI_KEY {
        return parse_codex_file(text);
    }
    if text.is_empty() {
        return Err(MalformedCredential::Empty);
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(MalformedCredential::Whitespace);
    }
    check_prefix(kind, text)?;
    let expires = (kind == ANTHROPIC_LOGIN).then(|| now + SETUP_TOKEN_LIFE);
    Ok(Credential {
        expires,
        ..Credential::new(Secret::new(text))
    })
}

/// Finds the token in the terminal output of `claude setup-token`, ignoring colours and wrapped lines.
#[must_use]
pub fn find_setup_token(output: &str) -> Option<Secret> {
    let plain = strip_escapes(output);
    let start = plain.rfind(ANTHROPIC_LOGIN.prefix)?;
    let mut token = String::new();
    for c in plain[start..].chars() {
        match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '-' | '_' => token.push(c),
            '\r' | '\n' if token.len() < SETUP_TOKEN_LENGTH => {}
            _ => break,
        }
        if token.len() == SETUP_TOKEN_LENGTH {
            break;
        }
    }
    Some(Secret::new(token))
}

/// Why a text is not a credential of the expected kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum MalformedCredential {
    /// The text is empty.
    #[error("the input is empty")]
    Empty,
    /// The text contains spaces, line breaks or characters outside of ASCII.
    #[error("a credential is one word without spaces and line breaks")]
    Whitespace,
    /// The text is shorter than any credential.
    #[error("the input is too short for a credential")]
    TooShort,
    /// The text has another prefix.
    #[error("the input {}", actual.map_or(format!("does not start with `{expected}`"), |kind| format!("looks like {kind}")))]
    Prefix {
        /// The expected prefix.
        expected: &'static str,
        /// The kind that the actual prefix belongs to.
        actual: Option<CredentialKind>,
    },
    /// The text is a refresh token without its access token.
    #[error("the input is a refresh token: paste the whole credentials file of `claude`")]
    RefreshTokenOnly,
    /// The text is JSON but not the credentials file of `claude`.
    #[error("the input is JSON but not the credentials file of `claude`")]
    NotClaudeFile,
    /// The text is JSON without an API key, such as the `auth.json` of a `ChatGPT` login.
    #[error(
        "the input is JSON without an OpenAI API key; the gateway does not support ChatGPT logins, create an API key"
    )]
    NoOpenAiKey,
}

fn check_prefix(kind: CredentialKind, text: &str) -> Result<(), MalformedCredential> {
    if text.len() < MIN_LENGTH {
        return Err(MalformedCredential::TooShort);
    }
    let expected = kind.prefix;
    if expected.is_empty() {
        return Ok(());
    }
    if text.starts_with(REFRESH_PREFIX) {
        return Err(MalformedCredential::RefreshTokenOnly);
    }
    // The longest prefix wins: OpenAI's is the start of Anthropic's.
    let actual = CredentialRecord::all()
        .filter(|kind| !kind.prefix.is_empty() && text.starts_with(kind.prefix))
        .max_by_key(|kind| kind.prefix.len());
    if actual == Some(kind) {
        return Ok(());
    }
    Err(MalformedCredential::Prefix { expected, actual })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialsFile {
    claude_ai_oauth: ClaudeLogin,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaudeLogin {
    access_token: Secret,
    refresh_token: Option<Secret>,
    /// In milliseconds since 1970.
    expires_at: i64,
    #[serde(default)]
    scopes: Vec<String>,
}

fn parse_claude_file(text: &str) -> Result<Credential, MalformedCredential> {
    let file: CredentialsFile = serde_json::from_str(text).map_err(|_| MalformedCredential::NotClaudeFile)?;
    let login = file.claude_ai_oauth;
    check_prefix(ANTHROPIC_LOGIN, login.access_token.expose())?;
    let expires =
        Timestamp::from_millisecond(login.expires_at).map_err(|_| MalformedCredential::NotClaudeFile)?;
    let scopes = login.scopes;
    Ok(Credential {
        token: login.access_token,
        expires: Some(expires),
        refresh: login.refresh_token.map(|token| RefreshToken { token, scopes }),
    })
}

/// The part of the `auth.json` of `codex` that is used.
#[derive(Deserialize)]
struct CodexFile {
    #[serde(rename = "OPENAI_API_KEY")]
    key: Option<Secret>,
}

fn parse_codex_file(text: &str) -> Result<Credential, MalformedCredential> {
    let file: CodexFile = serde_json::from_str(text).map_err(|_| MalformedCredential::NoOpenAiKey)?;
    let key = file.key.ok_or(MalformedCredential::NoOpenAiKey)?;
    check_prefix(OPENAI_KEY, key.expose())?;
    Ok(Credential::new(key))
}

/// Removes the escape sequences of a terminal.
fn strip_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        if rest.next() == Some('[') {
            // The final byte of a control sequence.
            rest.find(|c| matches!(c, '@'..='~'));
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::model::{ANTHROPIC_KEY, GATEWAY_KEY};

    const OAUTH: &str = "sk-ant-oat01-CANARY";

    #[rstest]
    #[case::login(ANTHROPIC_LOGIN, "sk-ant-oat01-CANARY\n", None)]
    #[case::key(ANTHROPIC_KEY, " sk-ant-api03-CANARY ", None)]
    #[case::openai(OPENAI_KEY, "sk-proj-CANARY", None)]
    #[case::codex_file(OPENAI_KEY, r#"{"OPENAI_API_KEY": "sk-proj-CANARY", "tokens": null}"#, None)]
    #[case::gateway(GATEWAY_KEY, "anything-goes", None)]
    #[case::empty(GATEWAY_KEY, " \n", Some("the input is empty"))]
    #[case::two_words(
        OPENAI_KEY,
        "sk-a sk-b",
        Some("a credential is one word without spaces and line breaks")
    )]
    #[case::short(GATEWAY_KEY, "sk-1", Some("the input is too short for a credential"))]
    #[case::key_as_login(
        ANTHROPIC_LOGIN,
        "sk-ant-api03-CANARY",
        Some("the input looks like the Anthropic API key")
    )]
    #[case::anthropic_as_openai(OPENAI_KEY, OAUTH, Some("the input looks like the Claude login"))]
    #[case::unknown(
        ANTHROPIC_KEY,
        "hello-world",
        Some("the input does not start with `sk-ant-api`")
    )]
    #[case::refresh_token(
        ANTHROPIC_LOGIN,
        "sk-ant-ort01-CANARY",
        Some("the input is a refresh token: paste the whole credentials file of `claude`")
    )]
    #[case::json(
        ANTHROPIC_LOGIN,
        "{}",
        Some("the input is JSON but not the credentials file of `claude`")
    )]
    fn a_credential_is_checked_by_its_prefix(
        #[case] kind: CredentialKind,
        #[case] text: &str,
        #[case] expected: Option<&str>,
    ) {
        let error = parse(kind, text, Timestamp::UNIX_EPOCH).err();
        assert_eq!(error.map(|error| error.to_string()).as_deref(), expected);
    }

    #[test]
    fn a_setup_token_lasts_a_year() {
        let token = parse(ANTHROPIC_LOGIN, OAUTH, Timestamp::UNIX_EPOCH).unwrap();
        let year = Timestamp::from_second(365 * 24 * 3600).unwrap();
        assert_eq!(token.expires, Some(year));
        assert!(token.is_expired(year) && !token.is_expired(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn the_credentials_file_of_claude_contains_a_refresh_token() {
        let file = r#"{"claudeAiOauth": {"accessToken": "sk-ant-oat01-A", "refreshToken": "sk-ant-ort01-R",
            "expiresAt": 1794730636256, "scopes": ["user:inference"], "subscriptionType": "max", "rateLimitTier": null}}"#;
        let login = parse(ANTHROPIC_LOGIN, file, Timestamp::UNIX_EPOCH).unwrap();
        let refresh = login.refresh.unwrap();
        assert_eq!(
            (refresh.token.expose(), refresh.scopes),
            ("sk-ant-ort01-R", vec!["user:inference".to_owned()])
        );
        assert_eq!(login.expires.unwrap().as_millisecond(), 1_794_730_636_256);
    }

    #[rstest]
    #[case::plain("Your token:\r\n\r\n{}\r\n\r\nStore it.", None)]
    #[case::coloured("\u{1b}[2J\u{1b}[1;33m{}\u{1b}[0m done", None)]
    #[case::broken("{}", Some(80))]
    fn a_setup_token_is_found_in_terminal_output(#[case] shown: &str, #[case] width: Option<usize>) {
        let token = format!("sk-ant-oat01-{}", "aB3_-".repeat(19));
        assert_eq!(token.len(), SETUP_TOKEN_LENGTH);
        let broken = match width {
            Some(width) => format!("{}\r\n{}\r\n\r\nStore it.", &token[..width], &token[width..]),
            None => token.clone(),
        };
        let found = find_setup_token(&shown.replace("{}", &broken));
        assert_eq!(found.unwrap().expose(), token);
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(\u{1b}\\[|sk-ant-oat01-|\\PC|\r\n){0,20}") {
            let _ = find_setup_token(&text);
            for kind in CredentialRecord::all() {
                let _ = parse(kind, &text, Timestamp::UNIX_EPOCH);
            }
        }
    }
}
