//! One iteration of the `actions` agent: ask, read the answer, have it repaired once, have it performed.

use crate::agent::{Brief, Done, Ending, Outcome, Reached, Session, Step};
use crate::model::{Message, Reply};

use super::answer::{AnswerError, parse_answer};
use super::schema::{Action, Answer, Claims};

/// How much of an answer that cannot be used is shown to the model again.
const QUOTED: usize = 8_000;

/// A session of the `actions` agent.
pub(super) struct ActionsSession {
    prompt: String,
    state: State,
}

/// What the session waits for.
enum State {
    /// To begin.
    Fresh,
    /// The first answer.
    Asked,
    /// The answer after a repair round.
    AskedAgain,
    /// The actions.
    Performing(Outcome),
    /// Nothing any more.
    Finished,
}

impl ActionsSession {
    pub(super) fn new(brief: &Brief) -> Self {
        Self {
            prompt: brief.text.clone(),
            state: State::Fresh,
        }
    }

    fn perform(&mut self, answer: Answer) -> Step {
        let (actions, outcome) = split(answer);
        if actions.is_empty() {
            return Step::Finish(outcome);
        }
        self.state = State::Performing(outcome);
        Step::Perform(actions)
    }

    fn ask_again(&mut self, reply: &Reply, error: &AnswerError) -> Step {
        self.state = State::AskedAgain;
        Step::Ask(vec![
            Message::user(self.prompt.clone()),
            Message::assistant(shortened(&reply.text)),
            Message::user(format!(
                include_str!("../../../templates/prompt/repair.md"),
                error = error
            )),
        ])
    }
}

impl Session for ActionsSession {
    fn next(&mut self, last: Done) -> Step {
        match (std::mem::replace(&mut self.state, State::Finished), last) {
            (State::Fresh, Done::Nothing) => {
                self.state = State::Asked;
                Step::Ask(vec![Message::user(self.prompt.clone())])
            }
            (State::Asked, Done::Answered(reply)) => match read(&reply) {
                Ok(answer) => self.perform(answer),
                Err(error) => self.ask_again(&reply, &error),
            },
            (State::AskedAgain, Done::Answered(reply)) => match read(&reply) {
                Ok(answer) => self.perform(answer),
                Err(error) => unusable(error.to_string()),
            },
            (State::Performing(outcome), Done::Performed(reached)) => Step::Finish(ended(outcome, reached)),
            (
                State::Fresh | State::Asked | State::AskedAgain | State::Performing(_) | State::Finished,
                last,
            ) => unusable(format!("the session was told `{}` out of turn", last.name())),
        }
    }
}

/// Reads a reply. One that was cut off and yet is whole is fine.
fn read(reply: &Reply) -> Result<Answer, AnswerError> {
    match parse_answer(&reply.text) {
        Err(_) if reply.cut_off => Err(AnswerError::CutOff {
            characters: reply.text.chars().count(),
        }),
        read => read,
    }
}

/// What is to be performed, and how the iteration ends after that.
fn split(answer: Answer) -> (Vec<Action>, Outcome) {
    let mut actions = answer.actions;
    let last = actions.pop_if(|action| action.ending().is_some());
    let outcome = Outcome {
        summary: answer.summary,
        claims: answer.claims,
        ending: last
            .and_then(|action| action.ending())
            .unwrap_or(Ending::Continue),
    };
    (actions, outcome)
}

/// An ending stands last in the list, so it is not reached when an action before it fails.
fn ended(outcome: Outcome, reached: Reached) -> Outcome {
    match reached {
        Reached::End => outcome,
        Reached::Failure => Outcome {
            ending: Ending::Continue,
            ..outcome
        },
    }
}

fn unusable(error: String) -> Step {
    Step::Finish(Outcome {
        summary: String::new(),
        claims: Claims::default(),
        ending: Ending::Unusable { error },
    })
}

/// The beginning and the end of a long text.
fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= QUOTED {
        return text.to_owned();
    }
    let head: String = text.chars().take(QUOTED / 2).collect();
    let tail: String = text.chars().skip(count - QUOTED / 2).collect();
    format!("{head}\n[... {} characters left out ...]\n{tail}", count - QUOTED)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::agent::Agent;
    use crate::agent::actions::ActionsAgent;
    use crate::model::Role;

    use super::*;

    const BAD: &str = "I would run the tests.";

    fn session() -> Box<dyn Session> {
        ActionsAgent.session(&Brief {
            text: "Do it.".to_owned(),
            iteration: 1,
            home: "/home".into(),
            cost_left: None,
        })
    }

    fn answered(text: &str) -> Done {
        Done::Answered(Reply {
            text: text.to_owned(),
            model: "scripted".to_owned(),
            tokens: None,
            cost: None,
            cut_off: false,
            unmetered_attempts: 0,
        })
    }

    fn cut_off(text: &str) -> Done {
        match answered(text) {
            Done::Answered(reply) => Done::Answered(Reply {
                cut_off: true,
                ..reply
            }),
            other => other,
        }
    }

    fn good(actions: &str) -> String {
        format!(r#"{{"summary": "s", "actions": [{actions}], "claims": {{"checkboxes_checked": ["M1.1"]}}}}"#)
    }

    fn asked(step: Step) -> Vec<Message> {
        match step {
            Step::Ask(messages) => messages,
            other => panic!("not asked: {other:?}"),
        }
    }

    fn finished(step: Step) -> Outcome {
        match step {
            Step::Finish(outcome) => outcome,
            other => panic!("not finished: {other:?}"),
        }
    }

    fn names(step: Step) -> Vec<&'static str> {
        match step {
            Step::Perform(actions) => actions.iter().map(Action::name).collect(),
            other => panic!("not to be performed: {other:?}"),
        }
    }

    #[rstest]
    #[case("", Ending::Continue)]
    #[case(r#", {"type": "rotate", "reason": "r"}"#, Ending::Rotate { reason: "r".into() })]
    #[case(r#", {"type": "pause", "reason": "r"}"#, Ending::Pause { reason: "r".into() })]
    #[case(r#", {"type": "stop_success", "reason": "r"}"#, Ending::StopSuccess { reason: "r".into() })]
    #[case(r#", {"type": "stop_failure", "reason": "r"}"#, Ending::StopFailure { reason: "r".into() })]
    fn a_good_answer_is_performed_and_ends_as_it_says(#[case] last: &str, #[case] ending: Ending) {
        let mut session = session();
        assert_eq!(asked(session.next(Done::Nothing)), [Message::user("Do it.")]);
        let answer = good(&format!(
            r#"{{"type": "run", "command": "make"}}, {{"type": "commit", "message": "m"}}{last}"#
        ));
        assert_eq!(names(session.next(answered(&answer))), ["run", "commit"]);
        let outcome = finished(session.next(Done::Performed(Reached::End)));
        assert_eq!(outcome.ending, ending);
        assert_eq!(outcome.summary, "s");
        assert_eq!(outcome.claims.checkboxes_checked, ["M1.1"]);
    }

    #[test]
    fn an_ending_behind_an_action_that_failed_is_not_reached() {
        let mut session = session();
        session.next(Done::Nothing);
        let actions = r#"{"type": "run", "command": "make"}, {"type": "stop_failure", "reason": "r"}"#;
        session.next(answered(&good(actions)));
        let outcome = finished(session.next(Done::Performed(Reached::Failure)));
        assert_eq!(outcome.ending, Ending::Continue);
        assert_eq!(outcome.claims.checkboxes_checked, ["M1.1"]);
    }

    #[test]
    fn an_answer_without_actions_is_finished_at_once() {
        let mut session = session();
        session.next(Done::Nothing);
        let outcome = finished(session.next(answered(&good(r#"{"type": "pause", "reason": "r"}"#))));
        assert_eq!(outcome.ending, Ending::Pause { reason: "r".into() });
    }

    #[test]
    fn a_bad_answer_is_sent_back_once_with_the_precise_error() {
        let mut session = session();
        session.next(Done::Nothing);
        let messages = asked(session.next(answered(BAD)));
        assert_eq!(messages[..2], [Message::user("Do it."), Message::assistant(BAD)]);
        assert_eq!(messages[2].role, Role::User);
        assert!(
            messages[2]
                .content
                .contains("the answer begins with \"I would run the tests.\"")
        );
        assert!(messages[2].content.contains(r"a line break as `\n`"));
        assert_eq!(
            names(session.next(answered(&good(r#"{"type": "run", "command": "make"}"#)))),
            ["run"]
        );
    }

    #[test]
    fn a_second_bad_answer_makes_the_iteration_unusable() {
        let mut session = session();
        session.next(Done::Nothing);
        session.next(answered(BAD));
        match finished(session.next(answered("{"))).ending {
            Ending::Unusable { error } => {
                assert!(error.contains("the JSON ends before it is complete"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_answer_that_was_cut_off_is_to_be_shorter() {
        let mut session = session();
        session.next(Done::Nothing);
        let messages = asked(session.next(cut_off("{\"summary\": \"ä")));
        assert!(
            messages[2]
                .content
                .contains("cut off at the output limit after 14 characters: answer shorter")
        );
    }

    #[test]
    fn a_whole_answer_at_the_very_limit_is_used() {
        let mut session = session();
        session.next(Done::Nothing);
        assert_eq!(
            names(session.next(cut_off(&good(r#"{"type": "run", "command": "make"}"#)))),
            ["run"]
        );
    }

    #[test]
    fn a_huge_answer_is_not_sent_back_whole() {
        let mut session = session();
        session.next(Done::Nothing);
        let huge = format!("begin {}end", "ö".repeat(1_000_000));
        let quoted = &asked(session.next(answered(&huge)))[1].content;
        assert!(quoted.starts_with("begin ") && quoted.ends_with("end"));
        assert!(quoted.contains("[... 992009 characters left out ...]"));
        assert!(quoted.chars().count() < 9_000);
    }

    #[rstest]
    #[case(&[], Done::Performed(Reached::End))]
    #[case(&[Turn::Begin], Done::Nothing)]
    #[case(&[Turn::Begin], Done::Performed(Reached::End))]
    #[case(&[Turn::Begin, Turn::Answer], Done::Nothing)]
    #[case(&[Turn::Begin, Turn::Answer, Turn::Perform], Done::Performed(Reached::End))]
    fn what_comes_out_of_turn_ends_the_session(#[case] turns: &[Turn], #[case] odd: Done) {
        let mut session = session();
        for turn in turns {
            session.next(match turn {
                Turn::Begin => Done::Nothing,
                Turn::Answer => answered(&good(r#"{"type": "run", "command": "make"}"#)),
                Turn::Perform => Done::Performed(Reached::End),
            });
        }
        assert!(matches!(
            finished(session.next(odd)).ending,
            Ending::Unusable { .. }
        ));
    }

    enum Turn {
        Begin,
        Answer,
        Perform,
    }
}
