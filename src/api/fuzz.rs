//! Fuzz bodies of the requests to the API, and of the output of programs that it shows.

use axum::extract::Query;
use axum::http::Uri;
use serde::de::DeserializeOwned;

use super::change::{RunChanges, WrittenFile};
use super::create::{NewRunRequest, check_settings};
use super::iterations::IterationPage;
use super::log::LogPage;
use super::run_list::RunPage;
use super::runs::{DiffChoice, EventPage, FileChoice};
use super::sgr::{plain_text, spans};
use super::share::ShareRequest;
use super::socket::ClientMessage;
use super::steer::{AllowedHosts, CommandChoice, DiagnosisChoice, ProfileChoice, RetryFrom, TaskText};
use crate::id::RunId;
use crate::state::{Intervention, Sign};
use crate::task::lint;
use crate::text::visible;

/// The longest summary of an intervention, in bytes: a shortened text and words around it.
const LONGEST_SUMMARY: usize = 200;

/// A body of a request, as each type that a handler takes.
pub(crate) fn api_body(body: &[u8]) {
    if let Some(request) = read::<NewRunRequest>(body) {
        let _ = check_settings(&request);
        // The digest of an idempotent request does not depend on how the client wrote it.
        let written = serde_json::to_vec(&request).unwrap_or_else(|error| panic!("{error}"));
        let again = read::<NewRunRequest>(&written).map(|again| serde_json::to_vec(&again).ok());
        assert_eq!(again.flatten(), Some(written));
    }
    if let Some(intervention) = read::<Intervention>(body) {
        let _ = intervention.problem();
        let summary = intervention.summary();
        assert!(!summary.contains('\n'), "{summary:?}");
        let written = serde_json::to_vec(&intervention).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read(&written), Some(intervention));
    }
    if let Some(sign) = read::<Sign>(body) {
        let note = Intervention::Sign(sign);
        assert!(note.problem().is_some() || note.summary().len() <= LONGEST_SUMMARY);
    }
    if let Some(task) = read::<TaskText>(body) {
        let _ = lint(Some(&task.text), 2);
    }
    let _ = (
        read::<RunChanges>(body),
        read::<WrittenFile>(body),
        read::<ShareRequest>(body),
    );
    let _ = (
        read::<AllowedHosts>(body),
        read::<CommandChoice>(body),
        read::<ClientMessage>(body),
    );
    let _ = (
        read::<DiagnosisChoice>(body),
        read::<ProfileChoice>(body),
        read::<RetryFrom>(body),
    );
    if let Ok(text) = std::str::from_utf8(body) {
        let _ = RunId::parse(text).map(|id| assert_eq!(RunId::parse(id.as_str()), Ok(id)));
        query(text);
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    serde_json::from_slice(body).ok()
}

/// The parameters of a query, as each type that a handler takes.
fn query(text: &str) {
    let Ok(uri) = format!("/v1/runs?{text}").parse::<Uri>() else {
        return;
    };
    let _ = Query::<RunPage>::try_from_uri(&uri).is_ok();
    let _ = Query::<LogPage>::try_from_uri(&uri).is_ok();
    let _ = Query::<EventPage>::try_from_uri(&uri).is_ok();
    let _ = Query::<IterationPage>::try_from_uri(&uri).is_ok();
    let _ = Query::<DiffChoice>::try_from_uri(&uri).is_ok();
    let _ = Query::<FileChoice>::try_from_uri(&uri).is_ok();
}

/// The output of a program.
pub(crate) fn program_output(bytes: &[u8]) {
    let text = &*String::from_utf8_lossy(bytes);
    let hidden = |c: char| c.is_control() && c != '\n' && c != '\t';
    let found = spans(text);
    let plain = plain_text(&found);
    assert!(!plain.contains(hidden));
    assert!(plain.len() <= visible(text).len());
    assert!(!found.is_empty() || !text.contains("\u{1b}[m"));
}
