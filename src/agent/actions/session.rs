//! One session of the `actions` agent: ask the model, let it repair a bad answer once, perform the actions.

use crate::agent::{AgentBrief, AgentConclusion, AgentOutcome, AgentSession, AgentStep, StepResult};
use crate::model::{ModelMessage, ModelReply};
use crate::text::cut_middle;

use super::answer::{AnswerError, cut_off, parse_answer};
use super::schema::{ActionsAnswer, AgentAction};

/// How many characters of a bad answer are sent back to the model.
const QUOTED: usize = 8_000;

/// A session of the `actions` agent.
pub(super) struct ActionsSession {
    prompt: String,
    state: ActionsState,
}

/// What the session waits for.
enum ActionsState {
    Fresh,
    Asked,
    AskedAgain,
    Performing(AgentOutcome),
    Finished,
}

impl ActionsSession {
    pub(super) fn new(brief: &AgentBrief) -> Self {
        Self {
            prompt: brief.text.clone(),
            state: ActionsState::Fresh,
        }
    }

    fn perform(&mut self, answer: ActionsAnswer) -> AgentStep {
        let (actions, outcome) = split(answer);
        if actions.is_empty() {
            return AgentStep::Finish(outcome);
        }
        self.state = ActionsState::Performing(outcome);
        AgentStep::Perform(actions)
    }

    fn ask_again(&mut self, reply: &ModelReply, error: &AnswerError) -> AgentStep {
        self.state = ActionsState::AskedAgain;
        AgentStep::Ask(vec![
            ModelMessage::user(self.prompt.clone()),
            ModelMessage::assistant(cut_middle(&reply.text, QUOTED)),
            ModelMessage::user(format!(
                include_str!("../../../templates/prompt/repair.md"),
                error = error
            )),
        ])
    }
}

impl AgentSession for ActionsSession {
    fn next(&mut self, last: StepResult) -> AgentStep {
        match (std::mem::replace(&mut self.state, ActionsState::Finished), last) {
            (ActionsState::Fresh, StepResult::Started) => {
                self.state = ActionsState::Asked;
                AgentStep::Ask(vec![ModelMessage::user(self.prompt.clone())])
            }
            (ActionsState::Asked, StepResult::Answered(reply)) => match parse(&reply) {
                Ok(answer) => self.perform(answer),
                Err(error) => self.ask_again(&reply, &error),
            },
            (ActionsState::AskedAgain, StepResult::Answered(reply)) => match parse(&reply) {
                Ok(answer) => self.perform(answer),
                Err(error) => AgentStep::Finish(AgentOutcome::unusable(error.to_string())),
            },
            (ActionsState::Performing(outcome), StepResult::Performed { completed }) => {
                AgentStep::Finish(AgentOutcome {
                    conclusion: if completed {
                        outcome.conclusion
                    } else {
                        // The conclusion is the last action, so it was not reached.
                        AgentConclusion::Continue
                    },
                    ..outcome
                })
            }
            (_, last) => AgentStep::Finish(AgentOutcome::unusable(last.unexpected())),
        }
    }
}

/// Parses a reply. A reply that was cut off but is complete JSON is accepted.
fn parse(reply: &ModelReply) -> Result<ActionsAnswer, AnswerError> {
    match parse_answer(&reply.text) {
        Err(_) if reply.cut_off => Err(cut_off(&reply.text)),
        parsed => parsed,
    }
}

/// Splits an answer into the actions to perform and the outcome after them.
fn split(answer: ActionsAnswer) -> (Vec<AgentAction>, AgentOutcome) {
    let mut actions = answer.actions;
    let last = actions.pop_if(|action| action.conclusion().is_some());
    let outcome = AgentOutcome {
        summary: answer.summary,
        progress: answer.progress,
        conclusion: last
            .and_then(|action| action.conclusion())
            .unwrap_or(AgentConclusion::Continue),
    };
    (actions, outcome)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use crate::agent::Agent;
    use crate::agent::actions::ActionsAgent;
    use crate::model::MessageRole;

    use super::*;

    const BAD: &str = "I would run the tests.";

    fn session() -> Box<dyn AgentSession> {
        ActionsAgent.session(&AgentBrief {
            text: "Do it.".to_owned(),
            iteration: 1,
            home: "/home".into(),
            cost_left: None,
        })
    }

    fn answered(text: &str) -> StepResult {
        StepResult::Answered(ModelReply {
            text: text.to_owned(),
            model: "scripted".to_owned(),
            tokens: None,
            cost: None,
            cut_off: false,
            unmetered_attempts: 0,
        })
    }

    fn cut_off(text: &str) -> StepResult {
        match answered(text) {
            StepResult::Answered(reply) => StepResult::Answered(ModelReply {
                cut_off: true,
                ..reply
            }),
            other => other,
        }
    }

    fn good(actions: &str) -> String {
        format!(r#"{{"summary": "s", "actions": [{actions}], "claims": {{"checkboxes_checked": ["M1.1"]}}}}"#)
    }

    fn asked(step: AgentStep) -> Vec<ModelMessage> {
        match step {
            AgentStep::Ask(messages) => messages,
            other => panic!("not asked: {other:?}"),
        }
    }

    fn finished(step: AgentStep) -> AgentOutcome {
        match step {
            AgentStep::Finish(outcome) => outcome,
            other => panic!("not finished: {other:?}"),
        }
    }

    fn names(step: AgentStep) -> Vec<&'static str> {
        match step {
            AgentStep::Perform(actions) => actions.iter().map(AgentAction::name).collect(),
            other => panic!("not to be performed: {other:?}"),
        }
    }

    #[rstest]
    #[case("", AgentConclusion::Continue)]
    #[case(r#", {"type": "rotate", "reason": "r"}"#, AgentConclusion::Rotate { reason: "r".into() })]
    #[case(r#", {"type": "pause", "reason": "r"}"#, AgentConclusion::Pause { reason: "r".into() })]
    #[case(r#", {"type": "stop_success", "reason": "r"}"#, AgentConclusion::StopSuccess { reason: "r".into() })]
    #[case(r#", {"type": "stop_failure", "reason": "r"}"#, AgentConclusion::StopFailure { reason: "r".into() })]
    fn a_good_answer_is_performed(#[case] last: &str, #[case] conclusion: AgentConclusion) {
        let mut session = session();
        assert_eq!(
            asked(session.next(StepResult::Started)),
            [ModelMessage::user("Do it.")]
        );
        let answer = good(&format!(
            r#"{{"type": "run", "command": "make"}}, {{"type": "commit", "message": "m"}}{last}"#
        ));
        assert_eq!(names(session.next(answered(&answer))), ["run", "commit"]);
        let outcome = finished(session.next(StepResult::Performed { completed: true }));
        assert_eq!(outcome.conclusion, conclusion);
        assert_eq!(outcome.summary, "s");
        assert_eq!(outcome.progress.checkboxes_checked, ["M1.1"]);
    }

    #[test]
    fn a_failed_action_skips_the_conclusion() {
        let mut session = session();
        session.next(StepResult::Started);
        let actions = r#"{"type": "run", "command": "make"}, {"type": "stop_failure", "reason": "r"}"#;
        session.next(answered(&good(actions)));
        let outcome = finished(session.next(StepResult::Performed { completed: false }));
        assert_eq!(outcome.conclusion, AgentConclusion::Continue);
        assert_eq!(outcome.progress.checkboxes_checked, ["M1.1"]);
    }

    #[test]
    fn an_answer_without_actions_is_finished_at_once() {
        let mut session = session();
        session.next(StepResult::Started);
        let outcome = finished(session.next(answered(&good(r#"{"type": "pause", "reason": "r"}"#))));
        assert_eq!(outcome.conclusion, AgentConclusion::Pause { reason: "r".into() });
    }

    #[test]
    fn a_bad_answer_is_sent_back_once_with_the_precise_error() {
        let mut session = session();
        session.next(StepResult::Started);
        let messages = asked(session.next(answered(BAD)));
        assert_eq!(
            messages[..2],
            [ModelMessage::user("Do it."), ModelMessage::assistant(BAD)]
        );
        assert_eq!(messages[2].role, MessageRole::User);
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
        session.next(StepResult::Started);
        session.next(answered(BAD));
        match finished(session.next(answered("{"))).conclusion {
            AgentConclusion::Unusable { error } => {
                assert!(error.contains("the JSON ends before it is complete"), "{error}");
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_cut_off_answer_has_to_be_shorter() {
        let mut session = session();
        session.next(StepResult::Started);
        let messages = asked(session.next(cut_off("{\"summary\": \"ä")));
        assert!(
            messages[2]
                .content
                .contains("cut off at the output limit after 14 characters: answer shorter")
        );
    }

    #[test]
    fn a_complete_answer_at_the_limit_is_used() {
        let mut session = session();
        session.next(StepResult::Started);
        assert_eq!(
            names(session.next(cut_off(&good(r#"{"type": "run", "command": "make"}"#)))),
            ["run"]
        );
    }

    #[test]
    fn a_huge_answer_is_shortened() {
        let mut session = session();
        session.next(StepResult::Started);
        let huge = format!("begin {}end", "ö".repeat(1_000_000));
        let quoted = &asked(session.next(answered(&huge)))[1].content;
        assert!(quoted.starts_with("begin ") && quoted.ends_with("end"));
        assert!(quoted.contains("[... 992009 characters ...]"));
        assert!(quoted.chars().count() < 9_000);
    }

    #[rstest]
    #[case(&[], StepResult::Performed { completed: true })]
    #[case(&[Input::Start], StepResult::Started)]
    #[case(&[Input::Start], StepResult::Performed { completed: true })]
    #[case(&[Input::Start, Input::Answer], StepResult::Started)]
    #[case(&[Input::Start, Input::Answer, Input::Performed], StepResult::Performed { completed: true })]
    fn an_unexpected_result_ends_the_session(#[case] inputs: &[Input], #[case] odd: StepResult) {
        let mut session = session();
        for input in inputs {
            session.next(match input {
                Input::Start => StepResult::Started,
                Input::Answer => answered(&good(r#"{"type": "run", "command": "make"}"#)),
                Input::Performed => StepResult::Performed { completed: true },
            });
        }
        assert!(matches!(
            finished(session.next(odd)).conclusion,
            AgentConclusion::Unusable { .. }
        ));
    }

    enum Input {
        Start,
        Answer,
        Performed,
    }
}
