//! What a look at 1,000 issues costs, against curl and jq.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value, json};
use support::fake_github::Recorded;
use support::ralph::{Live, finish};

use super::Fallible;
use super::figure::{Figure, MEDIAN, PeerSamples, Samples, Target, quick};
use super::stage::{PERSON_TOKEN, REPO, Stage, specification, wait_for};

const ISSUES: usize = 1000;
/// GitHub lists a hundred issues a page.
const PAGES: usize = 10;
/// The requests of a look: after a last page that is full, the next one is asked for.
const REQUESTS: usize = PAGES + 1;
/// Bytes of an issue.
const LENGTH: usize = 2000;
/// How often it is looked.
const TICKS: usize = 10;
/// Seconds from one look to the next, so that the peer comes between.
const INTERVAL: &str = "6";
/// How long the poller may work after its last request. It has ended long before.
const REST: Duration = Duration::from_millis(400);

/// What looks cost, of the poller and of the peer. Processor times are averages.
struct Costs {
    ours: Duration,
    peers: Duration,
    /// The time that passed.
    passed: Samples,
    peers_passed: Samples,
    /// The time that passed between the answers of the fake.
    between: Samples,
}

pub(crate) fn measure() -> Fallible<Vec<Figure>> {
    let stage = Stage::set_up();
    for number in 1..=ISSUES {
        stage.open_issue(number, &specification(number, LENGTH), &[]);
    }
    let mut poller = stage.poll(&json!({"iterations": []}), &["--interval", INTERVAL])?;
    let peer = Peer::set_up(&stage)?;
    // The first looks of both fetch everything.
    next_look(&stage, &mut poller)?;
    peer.look(&stage)?;
    let mut figures = Vec::new();
    for (name, changes) in [("tick-1000-unchanged", false), ("tick-1000-changed", true)] {
        let costs = looks(&stage, &mut poller, &peer, changes)?;
        println!(
            "{name}: the time that passed, ms: ours {}, of it between the answers of the fake {}; curl and jq {}",
            costs.passed, costs.between, costs.peers_passed
        );
        figures.push(Figure {
            name,
            unit: "ms",
            at: MEDIAN,
            ours: Samples::milliseconds([costs.ours]),
            peer: Some(PeerSamples::new(
                "curl and jq",
                &Samples::milliseconds([costs.peers]),
            )),
            target: Target::Most(200.0),
        });
    }
    Ok(figures)
}

/// Lets both look in turns. With `changes`, each issue is edited before each turn.
fn looks(stage: &Stage, poller: &mut Live, peer: &Peer, changes: bool) -> Fallible<Costs> {
    let (mut passed, mut between, mut peers_passed) = (Vec::new(), Vec::new(), Vec::new());
    let mut peers = Duration::ZERO;
    let ticks = quick::rounds(TICKS);
    let before = processor_time(poller)?;
    for turn in 0..ticks {
        if changes {
            edit_all(stage, turn);
        }
        let look = next_look(stage, poller)?;
        let sent_again = look.iter().filter(|request| request.status == 200).count();
        if sent_again != if changes { PAGES } else { 0 } {
            return Err(format!("{sent_again} of {PAGES} pages were sent again").into());
        }
        let time = look[REQUESTS - 1].ended - look[0].began;
        let of_fake: Duration = look.iter().map(|request| request.ended - request.began).sum();
        passed.push(time);
        between.push(time.saturating_sub(of_fake));
        let (processor, time) = peer.look(stage)?;
        peers += processor;
        peers_passed.push(time);
    }
    let turns = u32::try_from(ticks)?;
    Ok(Costs {
        ours: processor_time(poller)?.saturating_sub(before) / turns,
        peers: peers / turns,
        passed: Samples::milliseconds(passed),
        peers_passed: Samples::milliseconds(peers_passed),
        between: Samples::milliseconds(between),
    })
}

fn edit_all(stage: &Stage, turn: usize) {
    for number in 1..=ISSUES {
        let body = specification(number, LENGTH) + &format!("\nEdited {turn} times.\n");
        stage.github.edit_issue_as("ada", REPO, number as u64, &body);
    }
}

/// Waits for the next look at all issues, and until the poller has done with it.
fn next_look(stage: &Stage, poller: &mut Live) -> Fallible<Vec<Recorded>> {
    let known = stage.looks(REQUESTS).len();
    wait_for(poller, || stage.looks(REQUESTS).len() > known)?;
    sleep(REST);
    let look = stage.looks(REQUESTS).into_iter().nth(known);
    Ok(look.ok_or("no look at the issues was recorded")?)
}

/// The processor time of the poller, without that of commands it ran. The clock of `/proc` has hundredths of a second.
fn processor_time(poller: &Live) -> Fallible<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", poller.pid()))?;
    // The name of the program, in brackets, may have blanks; utime and stime are the 12th and 13th after it.
    let (_, fields) = stat.rsplit_once(") ").ok_or("/proc/PID/stat has no name")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks: u64 = fields[11].parse::<u64>()? + fields[12].parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}

/// What a shell script would do.
struct Peer {
    dir: PathBuf,
}

impl Peer {
    fn set_up(stage: &Stage) -> Fallible<Self> {
        let dir = stage.place.path().join("peer");
        std::fs::create_dir(&dir)?;
        Ok(Self { dir })
    }

    /// Lists all issues. Returns its processor time, and the time that passed.
    fn look(&self, stage: &Stage) -> Fallible<(Duration, Duration)> {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/github/peer");
        let url = format!(
            "{}/repos/{REPO}/issues?labels=spec&state=open&sort=created&direction=asc",
            stage.github.url()
        );
        let line = format!("'{}' '{url}' {PAGES} '{}'", program.display(), self.dir.display());
        let ended = finish(stage.place.shell(&line).env("GITHUB_PAT", PERSON_TOKEN));
        let (times, listed) = ended.stdout.split_once('\n').unwrap_or_default();
        let listed: Value = serde_json::from_str(listed).unwrap_or_default();
        if ended.code != Some(0) || listed["issues"] != ISSUES {
            return Err(format!("curl and jq failed: {ended:?}").into());
        }
        let seconds: Vec<f64> = times.split(' ').map(str::parse).collect::<Result<_, _>>()?;
        let [user, system, passed] = seconds[..] else {
            return Err(format!("three times were expected: {times}").into());
        };
        Ok((
            Duration::from_secs_f64(user + system),
            Duration::from_secs_f64(passed),
        ))
    }
}
