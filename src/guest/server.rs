//! The server of a session: one loop that waits for ralph, for keepers and for pipes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::descendants;
use super::frame::Decoder;
use super::job::{Advice, Fed, Feed, Job, Link};
use super::keeper::{Duty, Order, Report, Stdio3};
use super::line::Line;
use super::message::{CHUNK, Channel, FromGuest, Input, Stage, Start, ToGuest};
use super::outbox::Outbox;
use super::sys::{self, Forked, Watched};
use super::version::VERSION;

/// How long processes that lost their keeper may take to go once they were killed.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(1);

/// Runs commands for whoever is at the other end.
#[derive(Debug)]
pub(crate) struct Server {
    ralph: File,
    decoder: Decoder,
    outbox: Outbox,
    jobs: BTreeMap<u32, Job>,
    /// The keepers of commands that have ended and left something behind.
    released: Vec<Link>,
    /// Who wants to know when everything has ended.
    enders: Vec<u32>,
    chunk: Vec<u8>,
}

/// What [`Server::turn`] leads to.
#[derive(Debug)]
pub(crate) enum Turn {
    On,
    /// The other end is gone, and so is every command that ran for it.
    Over,
    /// This process is now the keeper of one command.
    Keep(Duty),
}

/// What a watched file is.
#[derive(Clone, Copy, Debug)]
enum Source {
    Ralph,
    Outbox,
    Keeper(u32),
    Output(u32, Channel),
    Input(u32),
    Released { keeper: i32 },
}

impl Server {
    /// Says hello.
    pub(crate) fn open(line: Line) -> io::Result<Self> {
        let mut server = Self {
            ralph: line.from_ralph,
            decoder: Decoder::default(),
            outbox: Outbox::new(line.to_ralph)?,
            jobs: BTreeMap::new(),
            released: Vec::new(),
            enders: Vec::new(),
            chunk: vec![0; CHUNK],
        };
        server.outbox.push(0, FromGuest::Hello(VERSION))?;
        Ok(server)
    }

    /// Waits for the next thing to happen and deals with it.
    pub(crate) fn turn(&mut self) -> io::Result<Turn> {
        self.advance()?;
        if self.outbox.flush().is_err() {
            return Ok(self.end());
        }
        for source in self.wait()? {
            match self.attend(source)? {
                Turn::On => {}
                other => return Ok(other),
            }
        }
        Ok(Turn::On)
    }

    /// Takes the steps that are due for each command.
    fn advance(&mut self) -> io::Result<()> {
        let (now, backed_up) = (Instant::now(), self.outbox.is_full());
        let advice: Vec<(u32, Advice)> = self
            .jobs
            .iter_mut()
            .map(|(id, job)| (*id, job.advance(now, backed_up)))
            .filter(|(_, advice)| *advice != Advice::Wait)
            .collect();
        for (id, advice) in advice {
            match advice {
                Advice::Wait => {}
                Advice::KeeperIsLost => self.give_up_keeper(id)?,
                Advice::Release | Advice::Forget => self.report_exit(id, advice)?,
            }
        }
        let ended = self.released.is_empty() && !self.jobs.values().any(Job::is_being_killed);
        if ended && !self.enders.is_empty() {
            self.kill_orphans()?;
            for id in mem::take(&mut self.enders) {
                self.outbox.push(id, FromGuest::AllEnded)?;
            }
        }
        Ok(())
    }

    fn report_exit(&mut self, id: u32, advice: Advice) -> io::Result<()> {
        let Some(job) = self.jobs.remove(&id) else {
            return Ok(());
        };
        self.outbox.push(id, job.exit())?;
        if advice == Advice::Release {
            job.keeper.tell(Order::Release);
            self.released.push(job.keeper);
        }
        Ok(())
    }

    /// Waits until something is ready or some time is over; returns what is ready.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let (sources, mut watched): (Vec<Source>, Vec<Watched>) = self.watched().into_iter().unzip();
        let alarm = self.jobs.values().filter_map(Job::alarm).min();
        let longest = alarm.map(|alarm| alarm.saturating_duration_since(Instant::now()));
        sys::wait(&mut watched, longest)?;
        let ready = sources
            .into_iter()
            .zip(watched)
            .filter(|(_, watched)| watched.is_ready());
        Ok(ready.map(|(source, _)| source).collect())
    }

    fn watched(&self) -> Vec<(Source, Watched)> {
        let mut watched = vec![(Source::Ralph, Watched::for_reading(&self.ralph))];
        if !self.outbox.is_empty() {
            watched.push((Source::Outbox, Watched::for_writing(&self.outbox)));
        }
        for (id, job) in &self.jobs {
            if let Some(keeper) = job.keeper_on_duty() {
                watched.push((Source::Keeper(*id), Watched::for_reading(keeper)));
            }
            if let Some(pipe) = job.input.as_ref().and_then(Feed::watched) {
                watched.push((Source::Input(*id), Watched::for_writing(pipe)));
            }
            let outputs = job.outputs().filter(|_| !self.outbox.is_full());
            for (channel, pipe) in outputs {
                watched.push((Source::Output(*id, channel), Watched::for_reading(pipe)));
            }
        }
        for link in &self.released {
            let keeper = link.process();
            watched.push((Source::Released { keeper }, Watched::for_reading(link)));
        }
        watched
    }

    fn attend(&mut self, source: Source) -> io::Result<Turn> {
        match source {
            Source::Ralph => return self.hear_ralph(),
            // The next turn begins with sending.
            Source::Outbox => {}
            Source::Keeper(id) => self.hear_keeper(id)?,
            Source::Output(id, channel) => self.pass_output_on(id, channel)?,
            Source::Input(id) => self.pass_input_on(id)?,
            Source::Released { keeper } => {
                self.released
                    .retain(|link| link.process() != keeper || link.hear().is_some());
            }
        }
        Ok(Turn::On)
    }

    fn hear_ralph(&mut self) -> io::Result<Turn> {
        match self.ralph.read(&mut self.chunk) {
            Ok(0) => return Ok(self.end()),
            Ok(read) => self.decoder.room().extend_from_slice(&self.chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::On),
            Err(_) => return Ok(self.end()),
        }
        let mut decoder = mem::take(&mut self.decoder);
        while let Some(frame) = decoder.next().map_err(io::Error::other)? {
            let message = ToGuest::of(frame).map_err(io::Error::other)?;
            if let Turn::Keep(duty) = self.obey(frame.id, message)? {
                return Ok(Turn::Keep(duty));
            }
        }
        self.decoder = decoder;
        Ok(Turn::On)
    }

    fn obey(&mut self, id: u32, message: ToGuest<'_>) -> io::Result<Turn> {
        match (message, self.jobs.get_mut(&id)) {
            (ToGuest::Start(start), _) => match start_job(&start) {
                Ok(Started::Here(job)) => {
                    self.jobs.insert(id, job);
                }
                Ok(Started::AsKeeper(duty)) => return Ok(Turn::Keep(duty)),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    self.outbox.push(id, FromGuest::Failed(Stage::Prepare, errno))?;
                }
            },
            (ToGuest::EndAll, _) => {
                self.jobs.values_mut().for_each(Job::kill);
                self.released.iter().for_each(|keeper| keeper.tell(Order::Kill));
                self.enders.push(id);
            }
            (ToGuest::Kill, Some(job)) => job.kill(),
            (ToGuest::Credit(channel, bytes), Some(job)) => job.tap(channel).grant(bytes),
            (ToGuest::Stdin(bytes), Some(job)) => {
                if let Some(feed) = &mut job.input {
                    feed.push(bytes);
                }
            }
            (ToGuest::StdinEnd, Some(job)) => {
                if let Some(feed) = &mut job.input {
                    feed.finish();
                }
            }
            // It ended before ralph heard of that.
            (ToGuest::Kill | ToGuest::Credit(..) | ToGuest::Stdin(_) | ToGuest::StdinEnd, None) => {}
        }
        Ok(Turn::On)
    }

    fn hear_keeper(&mut self, id: u32) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        match job.keeper.hear() {
            Some(Report::Exited(status)) => job.note_exit(status),
            Some(Report::Gone) => job.note_gone(),
            Some(Report::Failed(stage, errno)) => {
                self.jobs.remove(&id);
                self.outbox.push(id, FromGuest::Failed(stage, errno))?;
            }
            None => self.give_up_keeper(id)?,
        }
        Ok(())
    }

    /// Ends a command whose keeper was killed or does not answer. What was below it is below the guest then.
    fn give_up_keeper(&mut self, id: u32) -> io::Result<()> {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.note_gone();
        }
        self.kill_orphans()
    }

    /// Kills what is below the guest without a keeper, and keepers that have nothing to keep.
    fn kill_orphans(&self) -> io::Result<()> {
        let keepers = self
            .jobs
            .values()
            .filter_map(Job::keeper_on_duty)
            .chain(&self.released);
        let keepers: Vec<i32> = keepers.map(Link::process).collect();
        descendants::kill(std::process::id().cast_signed(), &keepers, ORPHAN_PATIENCE, || {})
    }

    fn pass_output_on(&mut self, id: u32, channel: Channel) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        match job.hear(channel, &mut self.chunk) {
            [] => Ok(()),
            piece => self.outbox.push(id, FromGuest::Output(channel, piece)),
        }
    }

    fn pass_input_on(&mut self, id: u32) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        let Some(feed) = &mut job.input else {
            return Ok(());
        };
        let (written, appetite) = feed.write();
        if appetite == Fed::Enough {
            job.input = None;
        }
        match u32::try_from(written) {
            Ok(0) | Err(_) => Ok(()),
            Ok(written) => self.outbox.push(id, FromGuest::Credit(written)),
        }
    }

    /// Ends every command that runs. Their input stays open until then: half of it must not be taken for all of it.
    fn end(&mut self) -> Turn {
        // All at once, then one after the other. A keeper that is gone already needs neither.
        for job in self.jobs.values() {
            let _ = job.keeper.end();
        }
        for job in self.jobs.values() {
            let _ = job.keeper.outlast();
        }
        Turn::Over
    }
}

/// Which side of the fork this is.
enum Started {
    Here(Job),
    AsKeeper(Duty),
}

/// Makes the command's streams and its keeper.
fn start_job(start: &Start<'_>) -> io::Result<Started> {
    let (own_stdout, stdout) = io::pipe()?;
    let (own_stderr, stderr) = io::pipe()?;
    let (stdin, feed) = match start.input {
        Input::Nothing => (None, None),
        Input::Piped => {
            let (stdin, own_stdin) = io::pipe()?;
            (Some(stdin.into()), Some(Feed::new(own_stdin)?))
        }
    };
    let (link, guest) = UnixStream::pair()?;
    match sys::split()? {
        Forked::Parent { child } => {
            let outputs = [own_stdout, own_stderr];
            Ok(Started::Here(Job::new(
                Link::new(link, child),
                feed,
                outputs,
                start.limits,
            )))
        }
        Forked::Child => {
            let streams = Stdio3 {
                stdin,
                stdout: stdout.into(),
                stderr: stderr.into(),
            };
            Ok(Started::AsKeeper(Duty::new(start, streams, guest)))
        }
    }
}
