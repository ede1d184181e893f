//! Notes that say what they are and what they are about.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a note is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NoteKind {
    /// Something that may help.
    Hint,
    /// Something that the agent does wrong.
    Correction,
    /// Something that a person has decided.
    Decision,
    /// Something that the agent cannot know.
    Context,
}

impl NoteKind {
    fn title(self) -> &'static str {
        match self {
            Self::Hint => "Hint",
            Self::Correction => "Correction",
            Self::Decision => "Decision",
            Self::Context => "Context",
        }
    }
}

/// A note for the next prompt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StructuredNote {
    /// The note.
    pub text: String,
    /// What it is.
    #[serde(default)]
    pub kind: Option<NoteKind>,
    /// The id of the checkbox that it is about.
    #[serde(default)]
    pub about: Option<String>,
}

impl StructuredNote {
    /// The note as the agent reads it.
    #[must_use]
    pub fn rendered(&self) -> String {
        let text = self.text.trim();
        match (self.kind, &self.about) {
            _ if text.is_empty() => String::new(),
            (None, None) => text.to_owned(),
            (Some(kind), None) => format!("{}: {text}", kind.title()),
            (Some(kind), Some(about)) => format!("{} about {about}: {text}", kind.title()),
            (None, Some(about)) => format!("About {about}: {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_what_it_is_and_what_it_is_about() {
        let note = |kind, about: Option<&str>, text: &str| {
            let (text, about) = (text.to_owned(), about.map(str::to_owned));
            StructuredNote { text, kind, about }.rendered()
        };
        assert_eq!(note(None, None, " plain\n"), "plain");
        assert_eq!(note(Some(NoteKind::Hint), None, "look"), "Hint: look");
        assert_eq!(
            note(Some(NoteKind::Correction), Some("M1.1"), "no"),
            "Correction about M1.1: no"
        );
        assert_eq!(note(None, Some("M1.1"), "yes"), "About M1.1: yes");
        // It is refused like any other empty note.
        assert_eq!(note(Some(NoteKind::Hint), Some("M1.1"), " "), "");
    }
}
