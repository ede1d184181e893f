//! The server of a session: one loop over the connection to ralph, the keepers and the pipes of the commands.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::connection::HostConnection;
use super::descendants;
use super::frame::FrameDecoder;
use super::job::{Job, JobAction, KeeperLink, StdinPipe};
use super::keeper::{CommandStdio, KeeperReport, KeeperRequest, KeeperTask};
use super::message::{CHUNK, Channel, FromGuest, StartCommand, StartStage, ToGuest};
use super::outbox::Outbox;
use super::sys::{self, ForkSide, PollEntry};
use super::version::VERSION;

/// How long killed processes without a keeper may take to disappear.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs commands for ralph.
#[derive(Debug)]
pub(crate) struct SessionServer {
    ralph: File,
    decoder: FrameDecoder,
    outbox: Outbox,
    jobs: BTreeMap<u32, Job>,
    /// The keepers of finished commands that left processes running.
    released: Vec<KeeperLink>,
    /// The ids of `EndAll` requests that are not answered yet.
    end_requests: Vec<u32>,
    chunk: Vec<u8>,
}

/// The result of [`SessionServer::turn`].
#[derive(Debug)]
pub(crate) enum Turn {
    Continue,
    /// Ralph has disconnected, and all its commands have ended.
    Finished,
    /// This process was forked off and is now the keeper of one command.
    BecomeKeeper(KeeperTask),
}

/// What an entry of `poll` belongs to.
#[derive(Clone, Copy, Debug)]
enum Source {
    Ralph,
    Outbox,
    Keeper(u32),
    Output(u32, Channel),
    Input(u32),
    Released { keeper: i32 },
}

impl SessionServer {
    /// Starts a session by sending the version.
    pub(crate) fn open(connection: HostConnection) -> io::Result<Self> {
        let mut server = Self {
            ralph: connection.from_ralph,
            decoder: FrameDecoder::default(),
            outbox: Outbox::new(connection.to_ralph)?,
            jobs: BTreeMap::new(),
            released: Vec::new(),
            end_requests: Vec::new(),
            chunk: vec![0; CHUNK],
        };
        server.outbox.push(0, FromGuest::Hello(VERSION))?;
        Ok(server)
    }

    /// Waits for the next events and handles them.
    pub(crate) fn turn(&mut self) -> io::Result<Turn> {
        self.advance_jobs()?;
        if self.outbox.flush().is_err() {
            return Ok(self.finish());
        }
        for source in self.wait()? {
            match self.handle(source)? {
                Turn::Continue => {}
                other => return Ok(other),
            }
        }
        Ok(Turn::Continue)
    }

    /// Takes the steps that are due for each command.
    fn advance_jobs(&mut self) -> io::Result<()> {
        let (now, backed_up) = (Instant::now(), self.outbox.is_full());
        let actions: Vec<(u32, JobAction)> = self
            .jobs
            .iter_mut()
            .map(|(id, job)| (*id, job.advance(now, backed_up)))
            .filter(|(_, action)| *action != JobAction::Wait)
            .collect();
        for (id, action) in actions {
            match action {
                JobAction::Wait => {}
                JobAction::AbandonKeeper => self.abandon_keeper(id)?,
                JobAction::Release | JobAction::Forget => self.report_exit(id, action)?,
            }
        }
        let all_ended = self.released.is_empty() && !self.jobs.values().any(Job::is_being_killed);
        if all_ended && !self.end_requests.is_empty() {
            self.kill_orphans()?;
            for id in mem::take(&mut self.end_requests) {
                self.outbox.push(id, FromGuest::AllEnded)?;
            }
        }
        Ok(())
    }

    fn report_exit(&mut self, id: u32, action: JobAction) -> io::Result<()> {
        let Some(job) = self.jobs.remove(&id) else {
            return Ok(());
        };
        self.outbox.push(id, job.exit_message())?;
        if action == JobAction::Release {
            job.keeper.send(KeeperRequest::Release);
            self.released.push(job.keeper);
        }
        Ok(())
    }

    /// Waits until something is ready or a deadline has passed; returns what is ready.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let (sources, mut entries): (Vec<Source>, Vec<PollEntry>) = self.poll_entries().into_iter().unzip();
        let deadline = self.jobs.values().filter_map(Job::deadline).min();
        let timeout = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        sys::poll_files(&mut entries, timeout)?;
        let ready = sources
            .into_iter()
            .zip(entries)
            .filter(|(_, entry)| entry.is_ready());
        Ok(ready.map(|(source, _)| source).collect())
    }

    fn poll_entries(&self) -> Vec<(Source, PollEntry)> {
        let mut entries = vec![(Source::Ralph, PollEntry::for_reading(&self.ralph))];
        if !self.outbox.is_empty() {
            entries.push((Source::Outbox, PollEntry::for_writing(&self.outbox)));
        }
        for (id, job) in &self.jobs {
            if let Some(keeper) = job.active_keeper() {
                entries.push((Source::Keeper(*id), PollEntry::for_reading(keeper)));
            }
            if let Some(pipe) = job.stdin.as_ref().and_then(StdinPipe::to_poll) {
                entries.push((Source::Input(*id), PollEntry::for_writing(pipe)));
            }
            let outputs = job.outputs().filter(|_| !self.outbox.is_full());
            for (channel, pipe) in outputs {
                entries.push((Source::Output(*id, channel), PollEntry::for_reading(pipe)));
            }
        }
        for link in &self.released {
            let keeper = link.pid();
            entries.push((Source::Released { keeper }, PollEntry::for_reading(link)));
        }
        entries
    }

    fn handle(&mut self, source: Source) -> io::Result<Turn> {
        match source {
            Source::Ralph => return self.read_messages(),
            // The next turn begins with sending.
            Source::Outbox => {}
            Source::Keeper(id) => self.read_report(id)?,
            Source::Output(id, channel) => self.forward_output(id, channel)?,
            Source::Input(id) => self.forward_input(id)?,
            Source::Released { keeper } => {
                self.released
                    .retain(|link| link.pid() != keeper || link.read_report().is_some());
            }
        }
        Ok(Turn::Continue)
    }

    fn read_messages(&mut self) -> io::Result<Turn> {
        match self.ralph.read(&mut self.chunk) {
            Ok(0) => return Ok(self.finish()),
            Ok(read) => self.decoder.buffer().extend_from_slice(&self.chunk[..read]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Turn::Continue),
            Err(_) => return Ok(self.finish()),
        }
        let mut decoder = mem::take(&mut self.decoder);
        while let Some(frame) = decoder.next().map_err(io::Error::other)? {
            let message = ToGuest::decode(frame).map_err(io::Error::other)?;
            if let Turn::BecomeKeeper(task) = self.handle_message(frame.id, message)? {
                return Ok(Turn::BecomeKeeper(task));
            }
        }
        self.decoder = decoder;
        Ok(Turn::Continue)
    }

    fn handle_message(&mut self, id: u32, message: ToGuest<'_>) -> io::Result<Turn> {
        match (message, self.jobs.get_mut(&id)) {
            (ToGuest::Start(start), _) => match start_job(&start) {
                Ok(Started::Job(job)) => {
                    self.jobs.insert(id, job);
                }
                Ok(Started::Keeper(task)) => return Ok(Turn::BecomeKeeper(task)),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    self.outbox
                        .push(id, FromGuest::Failed(StartStage::Prepare, errno))?;
                }
            },
            (ToGuest::EndAll, _) => {
                self.jobs.values_mut().for_each(Job::kill);
                self.released
                    .iter()
                    .for_each(|keeper| keeper.send(KeeperRequest::Kill));
                self.end_requests.push(id);
            }
            (ToGuest::Kill, Some(job)) => job.kill(),
            (ToGuest::Credit(channel, bytes), Some(job)) => job.output(channel).grant(bytes),
            (ToGuest::Stdin(bytes), Some(job)) => {
                if let Some(stdin) = &mut job.stdin {
                    stdin.push(bytes);
                }
            }
            (ToGuest::StdinEnd, Some(job)) => {
                if let Some(stdin) = &mut job.stdin {
                    stdin.close_when_empty();
                }
            }
            // The command ended while the message was in flight.
            (ToGuest::Kill | ToGuest::Credit(..) | ToGuest::Stdin(_) | ToGuest::StdinEnd, None) => {}
        }
        Ok(Turn::Continue)
    }

    fn read_report(&mut self, id: u32) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        match job.keeper.read_report() {
            Some(KeeperReport::Exited(status)) => job.set_exited(status),
            Some(KeeperReport::Gone) => job.set_gone(),
            Some(KeeperReport::Failed(stage, errno)) => {
                self.jobs.remove(&id);
                self.outbox.push(id, FromGuest::Failed(stage, errno))?;
            }
            None => self.abandon_keeper(id)?,
        }
        Ok(())
    }

    /// Ends a command whose keeper was killed or does not respond. Its processes are now children of the guest.
    fn abandon_keeper(&mut self, id: u32) -> io::Result<()> {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.set_gone();
        }
        self.kill_orphans()
    }

    /// Kills descendants of the guest that have no keeper, and keepers that have nothing to keep.
    fn kill_orphans(&self) -> io::Result<()> {
        let keepers = self
            .jobs
            .values()
            .filter_map(Job::active_keeper)
            .chain(&self.released);
        let keepers: Vec<i32> = keepers.map(KeeperLink::pid).collect();
        descendants::kill(std::process::id().cast_signed(), &keepers, ORPHAN_TIMEOUT, || {})
    }

    fn forward_output(&mut self, id: u32, channel: Channel) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        match job.read_output(channel, &mut self.chunk) {
            [] => Ok(()),
            piece => self.outbox.push(id, FromGuest::Output(channel, piece)),
        }
    }

    fn forward_input(&mut self, id: u32) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        let Some(stdin) = &mut job.stdin else {
            return Ok(());
        };
        let written = stdin.write();
        if stdin.is_finished() {
            job.stdin = None;
        }
        match u32::try_from(written) {
            Ok(0) | Err(_) => Ok(()),
            Ok(written) => self.outbox.push(id, FromGuest::Credit(written)),
        }
    }

    /// Ends all running commands. Their input stays open until they are dead: a command must not take a part of its
    /// input for all of it.
    fn finish(&mut self) -> Turn {
        // Ask all keepers first, then wait for each. Errors mean that a keeper is already gone.
        for job in self.jobs.values() {
            let _ = job.keeper.end();
        }
        for job in self.jobs.values() {
            let _ = job.keeper.wait_for_exit();
        }
        Turn::Finished
    }
}

/// The result of starting a command, on either side of the fork.
enum Started {
    Job(Job),
    Keeper(KeeperTask),
}

/// Creates the streams of a command and forks its keeper.
fn start_job(start: &StartCommand<'_>) -> io::Result<Started> {
    let (own_stdout, stdout) = io::pipe()?;
    let (own_stderr, stderr) = io::pipe()?;
    let (stdin, own_stdin) = if start.has_stdin {
        let (stdin, own_stdin) = io::pipe()?;
        (Some(stdin.into()), Some(StdinPipe::new(own_stdin)?))
    } else {
        (None, None)
    };
    let (link, guest) = UnixStream::pair()?;
    match sys::fork_process()? {
        ForkSide::Parent { child } => Ok(Started::Job(Job::new(
            KeeperLink::new(link, child),
            own_stdin,
            [own_stdout, own_stderr],
            start.limits,
        ))),
        ForkSide::Child => {
            let streams = CommandStdio {
                stdin,
                stdout: stdout.into(),
                stderr: stderr.into(),
            };
            Ok(Started::Keeper(KeeperTask::new(start, streams, guest)))
        }
    }
}
