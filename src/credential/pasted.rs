//! What a person hands over: a token, a key, or the whole credentials file of Claude.

use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use thiserror::Error;

use super::{Credential, Kind, Refresh};
use crate::secret::Secret;

const OAUTH_PREFIX: &str = "sk-ant-oat01-";
const ANTHROPIC_PREFIX: &str = "sk-ant-api";
const OPENAI_PREFIX: &str = "sk-";
/// `claude setup-token` makes tokens for a year.
const SETUP_TOKEN_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);
/// A setup token is this long. Longer or shorter ones are taken when pasted; a terminal's lines are joined up to here.
const SETUP_TOKEN_LENGTH: usize = 108;
/// Shorter values are no credential of any service.
const SHORTEST: usize = 8;

/// Reads a credential, or says what it is in place of one. What was read is never repeated.
pub fn parse(kind: Kind, text: &str, now: Timestamp) -> Result<Credential, Malformed> {
    let text = text.trim();
    if kind == Kind::AnthropicOAuth && text.starts_with('{') {
        return parse_file(text);
    }
    if kind == Kind::OpenAiKey && text.starts_with('{') {
        return parse_codex_file(text);
    }
    if text.is_empty() {
        return Err(Malformed::Empty);
    }
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(Malformed::NotOneWord);
    }
    check_shape(kind, text)?;
    let expires = (kind == Kind::AnthropicOAuth).then(|| now + SETUP_TOKEN_LIFE);
    Ok(Credential {
        expires,
        ..Credential::lasting(Secret::new(text))
    })
}

/// The token in what `claude setup-token` showed on a terminal, colours and broken lines included.
#[must_use]
pub fn find_setup_token(shown: &str) -> Option<Secret> {
    let plain = without_escapes(shown);
    let start = plain.rfind(OAUTH_PREFIX)?;
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

/// Why a text is no credential of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Malformed {
    /// Nothing was given.
    #[error("nothing was given")]
    Empty,
    /// There are spaces, line breaks or other characters within.
    #[error("a credential is one word without spaces and line breaks")]
    NotOneWord,
    /// It is shorter than any credential is.
    #[error("this is too short to be a credential")]
    TooShort,
    /// It begins differently.
    #[error("this does not begin with `{expected}`{}", but.map_or(String::new(), |but| format!("; it looks like {but}")))]
    Prefix {
        /// How it should begin.
        expected: &'static str,
        /// What it seems to be instead.
        but: Option<&'static str>,
    },
    /// It is JSON without a login in it.
    #[error("this is JSON, but not the credentials file of Claude")]
    NotAFile,
    /// It is the file in which `codex` keeps a login of `ChatGPT`.
    #[error(
        "this is JSON without a key of the OpenAI API in it; the login of ChatGPT is for a service of its own, which \
         the gateway does not speak to: make a key of the API"
    )]
    ChatGpt,
}

fn check_shape(kind: Kind, text: &str) -> Result<(), Malformed> {
    if text.len() < SHORTEST {
        return Err(Malformed::TooShort);
    }
    let expected = match kind {
        Kind::AnthropicOAuth => OAUTH_PREFIX,
        Kind::AnthropicKey => ANTHROPIC_PREFIX,
        Kind::OpenAiKey if text.starts_with("sk-ant-") => "sk-proj-",
        Kind::OpenAiKey => OPENAI_PREFIX,
        Kind::CursorKey | Kind::GatewayKey => "",
    };
    if text.starts_with(expected) {
        Ok(())
    } else {
        let but = known_prefix(text);
        Err(Malformed::Prefix { expected, but })
    }
}

fn known_prefix(text: &str) -> Option<&'static str> {
    let known = [
        (OAUTH_PREFIX, "a Claude login (`--auth oauth`)"),
        ("sk-ant-ort01-", "a refresh token, which goes with its whole file"),
        (
            ANTHROPIC_PREFIX,
            "an Anthropic key (`--agent claude --auth api-key`)",
        ),
        (OPENAI_PREFIX, "an OpenAI key (`--agent codex --auth api-key`)"),
    ];
    known
        .into_iter()
        .find_map(|(prefix, what)| text.starts_with(prefix).then_some(what))
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

fn parse_file(text: &str) -> Result<Credential, Malformed> {
    let file: CredentialsFile = serde_json::from_str(text).map_err(|_| Malformed::NotAFile)?;
    let login = file.claude_ai_oauth;
    check_shape(Kind::AnthropicOAuth, login.access_token.expose())?;
    let expires = Timestamp::from_millisecond(login.expires_at).map_err(|_| Malformed::NotAFile)?;
    let scopes = login.scopes;
    Ok(Credential {
        token: login.access_token,
        expires: Some(expires),
        refresh: login.refresh_token.map(|token| Refresh { token, scopes }),
    })
}

/// What `codex` keeps in its `auth.json`, as far as it is of use.
#[derive(Deserialize)]
struct CodexFile {
    #[serde(rename = "OPENAI_API_KEY")]
    key: Option<Secret>,
}

fn parse_codex_file(text: &str) -> Result<Credential, Malformed> {
    let file: CodexFile = serde_json::from_str(text).map_err(|_| Malformed::ChatGpt)?;
    let key = file.key.ok_or(Malformed::ChatGpt)?;
    check_shape(Kind::OpenAiKey, key.expose())?;
    Ok(Credential::lasting(key))
}

/// Text without the sequences that colour it and move the cursor.
fn without_escapes(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\u{1b}' {
            plain.push(c);
            continue;
        }
        if rest.next() == Some('[') {
            // A sequence ends with a letter or one of a few signs.
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

    const OAUTH: &str = "sk-ant-oat01-CANARY";

    #[rstest]
    #[case::login(Kind::AnthropicOAuth, "sk-ant-oat01-CANARY\n", None)]
    #[case::key(Kind::AnthropicKey, " sk-ant-api03-CANARY ", None)]
    #[case::openai(Kind::OpenAiKey, "sk-proj-CANARY", None)]
    #[case::file_of_codex(
        Kind::OpenAiKey,
        r#"{"OPENAI_API_KEY": "sk-proj-CANARY", "tokens": null}"#,
        None
    )]
    #[case::gateway(Kind::GatewayKey, "anything-goes", None)]
    #[case::empty(Kind::GatewayKey, " \n", Some("nothing was given"))]
    #[case::two_words(
        Kind::OpenAiKey,
        "sk-a sk-b",
        Some("a credential is one word without spaces and line breaks")
    )]
    #[case::short(Kind::GatewayKey, "sk-1", Some("this is too short to be a credential"))]
    #[case::key_for_login(
        Kind::AnthropicOAuth,
        "sk-ant-api03-CANARY",
        Some(
            "this does not begin with `sk-ant-oat01-`; it looks like an Anthropic key (`--agent claude --auth api-key`)"
        )
    )]
    #[case::anthropic_for_openai(
        Kind::OpenAiKey,
        OAUTH,
        Some("this does not begin with `sk-proj-`; it looks like a Claude login (`--auth oauth`)")
    )]
    #[case::unknown(
        Kind::AnthropicKey,
        "hello-world",
        Some("this does not begin with `sk-ant-api`")
    )]
    #[case::json(
        Kind::AnthropicOAuth,
        "{}",
        Some("this is JSON, but not the credentials file of Claude")
    )]
    fn a_credential_is_told_by_its_shape(
        #[case] kind: Kind,
        #[case] text: &str,
        #[case] wrong: Option<&str>,
    ) {
        let error = parse(kind, text, Timestamp::UNIX_EPOCH).err();
        assert_eq!(error.map(|error| error.to_string()).as_deref(), wrong);
    }

    #[test]
    fn a_setup_token_lasts_a_year() {
        let token = parse(Kind::AnthropicOAuth, OAUTH, Timestamp::UNIX_EPOCH).unwrap();
        let year = Timestamp::from_second(365 * 24 * 3600).unwrap();
        assert_eq!(token.expires, Some(year));
        assert!(token.is_expired(year) && !token.is_expired(Timestamp::UNIX_EPOCH));
    }

    #[test]
    fn the_file_of_claude_brings_its_refresh_token() {
        let file = r#"{"claudeAiOauth": {"accessToken": "sk-ant-oat01-A", "refreshToken": "sk-ant-ort01-R",
            "expiresAt": 1794730636256, "scopes": ["user:inference"], "subscriptionType": "max", "rateLimitTier": null}}"#;
        let login = parse(Kind::AnthropicOAuth, file, Timestamp::UNIX_EPOCH).unwrap();
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
    fn a_setup_token_is_picked_up(#[case] shown: &str, #[case] width: Option<usize>) {
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
        fn any_text_is_looked_through_without_a_panic(text in "(\u{1b}\\[|sk-ant-oat01-|\\PC|\r\n){0,20}") {
            let _ = find_setup_token(&text);
            for kind in Kind::ALL {
                let _ = parse(kind, &text, Timestamp::UNIX_EPOCH);
            }
        }
    }
}
