//! What reviewers say about a pull request, and the answers to them.

use serde::{Deserialize, Serialize};

use crate::id::RunId;

/// Something that a reviewer wrote about a pull request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewComment {
    /// Where it is.
    #[serde(flatten)]
    pub place: ReviewPlace,
    /// Its number, which is unique among those of its kind.
    pub id: u64,
    /// The account of the reviewer.
    pub author: String,
    /// What they wrote.
    pub text: String,
}

/// Where a reviewer wrote something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "place", rename_all = "snake_case")]
pub enum ReviewPlace {
    /// At a line of a file.
    Thread {
        /// The number of the first comment of the thread.
        thread: u64,
        /// The file.
        path: String,
        /// The line; `None` if the comment is about the file.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        line: Option<u64>,
    },
    /// The text of a review.
    Review,
    /// Below the pull request.
    Discussion,
}

impl ReviewComment {
    /// The thread that it belongs to.
    #[must_use]
    pub fn thread(&self) -> Option<u64> {
        match self.place {
            ReviewPlace::Thread { thread, .. } => Some(thread),
            ReviewPlace::Review | ReviewPlace::Discussion => None,
        }
    }

    /// Whether both are the same comment. The text may have been edited in between.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        let same_kind = std::mem::discriminant(&self.place) == std::mem::discriminant(&other.place);
        same_kind && self.id == other.id
    }
}

/// An answer to reviewers: in a thread, or below the pull request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewAnswer {
    /// The run that answers.
    pub run: RunId,
    /// The number of the pull request.
    pub pull_request: u64,
    /// The round of review, from 1. There is one answer at each place in a round.
    pub round: usize,
    /// The thread; `None` below the pull request.
    pub thread: Option<u64>,
    /// The text, in Markdown.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comment(place: ReviewPlace, id: u64, text: &str) -> ReviewComment {
        ReviewComment {
            place,
            id,
            author: "ada".to_owned(),
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_comment_is_known_by_its_kind_and_number() {
        let first = comment(ReviewPlace::Review, 1, "no");
        assert!(first.is(&comment(ReviewPlace::Review, 1, "edited")));
        assert!(!first.is(&comment(ReviewPlace::Review, 2, "no")));
        assert!(!first.is(&comment(ReviewPlace::Discussion, 1, "no")));
    }

    #[test]
    fn a_comment_is_stored_with_its_place() {
        let place = ReviewPlace::Thread {
            thread: 7,
            path: "a.txt".to_owned(),
            line: Some(3),
        };
        let stored = serde_json::to_string(&comment(place, 9, "x")).unwrap();
        assert_eq!(
            stored,
            r#"{"place":"thread","thread":7,"path":"a.txt","line":3,"id":9,"author":"ada","text":"x"}"#
        );
        let read: ReviewComment = serde_json::from_str(&stored).unwrap();
        assert_eq!(read.thread(), Some(7));
    }
}
