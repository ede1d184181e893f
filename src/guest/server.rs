//! The server of a session: one loop over the connection to ralph, the keepers and the pipes of the commands.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::mem;
use std::net::Shutdown;
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::connection::HostConnection;
use super::descendants;
use super::frame::FrameDecoder;
use super::job::{Job, JobAction, KeeperLink, StdinPipe};
use super::keeper::{self, Keeper, KeeperReport, KeeperRequest, KeeperStreams};
use super::message::{CHUNK, Channel, FromGuest, StartCommand, StartStage, ToGuest, VERSION};
use super::sys::{self, ForkSide, PollEntry, Signal};
use super::write_queue::WriteQueue;

/// Above this many unsent bytes, no more output of commands is read.
const MAX_UNSENT: usize = 512 * 1024;

/// How long killed processes without a keeper may take to disappear.
const ORPHAN_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause before what is left is killed again, while ralph waits for its end.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Runs commands for ralph.
#[derive(Debug)]
pub(crate) struct SessionServer {
    ralph: File,
    decoder: FrameDecoder,
    outbox: WriteQueue,
    jobs: BTreeMap<u32, Job>,
    /// The keepers of finished commands that left processes running.
    released: Vec<KeeperLink>,
    /// The ids of `EndAll` requests that are not answered yet.
    end_requests: Vec<u32>,
    chunk: Vec<u8>,
}

/// Whether to go on. A session ends when ralph disconnects, and in a process that was forked off to be the keeper of one
/// command.
type Flow = ControlFlow<Option<Keeper>>;

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
            outbox: WriteQueue::new(connection.to_ralph)?,
            jobs: BTreeMap::new(),
            released: Vec::new(),
            end_requests: Vec::new(),
            chunk: vec![0; CHUNK],
        };
        server.send(0, FromGuest::Hello(VERSION))?;
        Ok(server)
    }

    /// Serves ralph until it disconnects. Returns the keeper in a process that was forked off to be one; it needs nothing
    /// of the server, which is dropped.
    pub(crate) fn run(mut self) -> io::Result<Option<Keeper>> {
        loop {
            self.advance_jobs()?;
            if self.outbox.flush().is_err() {
                self.end_jobs();
                return Ok(None);
            }
            for source in self.wait()? {
                if let ControlFlow::Break(keeper) = self.handle(source)? {
                    return Ok(keeper);
                }
            }
        }
    }

    /// Queues a message.
    fn send(&mut self, id: u32, message: FromGuest<'_>) -> io::Result<()> {
        message
            .append_to(id, &mut self.outbox.bytes)
            .map_err(io::Error::other)
    }

    /// Whether ralph reads no output at the moment.
    fn is_backed_up(&self) -> bool {
        self.outbox.len() > MAX_UNSENT
    }

    /// Takes the steps that are due for each command.
    fn advance_jobs(&mut self) -> io::Result<()> {
        let (now, backed_up) = (Instant::now(), self.is_backed_up());
        let actions: Vec<(u32, JobAction)> = self
            .jobs
            .iter_mut()
            .filter_map(|(id, job)| Some((*id, job.advance(now, backed_up)?)))
            .collect();
        for (id, action) in actions {
            match action {
                JobAction::AbandonKeeper => self.abandon_keeper(id)?,
                JobAction::Release | JobAction::Forget => self.report_exit(id, action)?,
            }
        }
        let is_over = self.released.is_empty() && !self.jobs.values().any(Job::is_being_killed);
        if is_over && !self.end_requests.is_empty() && self.kill_orphans()? {
            for id in mem::take(&mut self.end_requests) {
                self.send(id, FromGuest::AllEnded)?;
            }
        }
        Ok(())
    }

    fn report_exit(&mut self, id: u32, action: JobAction) -> io::Result<()> {
        let Some(job) = self.jobs.remove(&id) else {
            return Ok(());
        };
        self.send(id, job.exit_message())?;
        if action == JobAction::Release {
            job.keeper.send(KeeperRequest::Release);
            self.released.push(job.keeper);
        }
        Ok(())
    }

    /// Waits until something is ready or a deadline has passed; returns what is ready.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let (sources, mut entries): (Vec<Source>, Vec<PollEntry>) = self.poll_entries().into_iter().unzip();
        let deadlines = self.jobs.values().filter_map(Job::deadline);
        let retry = (!self.end_requests.is_empty()).then(|| Instant::now() + RETRY_PAUSE);
        let deadline = deadlines.chain(retry).min();
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
        if self.outbox.len() > 0 {
            entries.push((Source::Outbox, PollEntry::for_writing(&self.outbox.stream)));
        }
        for (id, job) in &self.jobs {
            if let Some(keeper) = job.active_keeper() {
                entries.push((Source::Keeper(*id), PollEntry::for_reading(&keeper.stream)));
            }
            if let Some(stdin) = job.stdin.as_ref().filter(|stdin| !stdin.is_waiting()) {
                entries.push((Source::Input(*id), PollEntry::for_writing(&stdin.queue.stream)));
            }
            for (channel, pipe) in job.outputs_to_poll().filter(|_| !self.is_backed_up()) {
                entries.push((Source::Output(*id, channel), PollEntry::for_reading(pipe)));
            }
        }
        for link in &self.released {
            let keeper = link.pid;
            entries.push((Source::Released { keeper }, PollEntry::for_reading(&link.stream)));
        }
        entries
    }

    fn handle(&mut self, source: Source) -> io::Result<Flow> {
        match source {
            Source::Ralph => return self.read_messages(),
            // The next turn begins with sending.
            Source::Outbox => {}
            Source::Keeper(id) => self.read_report(id)?,
            Source::Output(id, channel) => self.forward_output(id, channel)?,
            Source::Input(id) => self.forward_input(id)?,
            Source::Released { keeper } => {
                self.released
                    .retain(|link| link.pid != keeper || link.read_report().is_some());
            }
        }
        Ok(Flow::Continue(()))
    }

    fn read_messages(&mut self) -> io::Result<Flow> {
        match self.ralph.read(&mut self.chunk) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Flow::Continue(())),
            Ok(0) | Err(_) => {
                self.end_jobs();
                return Ok(Flow::Break(None));
            }
            Ok(read) => self.decoder.buffer().extend_from_slice(&self.chunk[..read]),
        }
        let mut decoder = mem::take(&mut self.decoder);
        while let Some(frame) = decoder.next().map_err(io::Error::other)? {
            let message = ToGuest::decode(frame).map_err(io::Error::other)?;
            let flow = self.handle_message(frame.id, message)?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        self.decoder = decoder;
        Ok(Flow::Continue(()))
    }

    fn handle_message(&mut self, id: u32, message: ToGuest<'_>) -> io::Result<Flow> {
        match (message, self.jobs.get_mut(&id)) {
            (ToGuest::Start(start), _) => match self.start_job(id, &start) {
                Ok(None) => {}
                Ok(Some(streams)) => return Ok(Flow::Break(Some(Keeper::start(&start, streams)?))),
                Err(error) => {
                    let errno = error.raw_os_error().unwrap_or_default();
                    self.send(id, FromGuest::Failed(StartStage::Prepare, errno))?;
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
            (ToGuest::Credit(channel, bytes), Some(job)) => job.output(channel).credit += bytes as usize,
            (ToGuest::Stdin(bytes), Some(job)) => {
                if let Some(stdin) = &mut job.stdin {
                    stdin.queue.bytes.extend_from_slice(bytes);
                }
            }
            (ToGuest::StdinEnd, Some(job)) => {
                if let Some(stdin) = &mut job.stdin {
                    stdin.ended = true;
                }
            }
            // The command ended while the message was in flight.
            (ToGuest::Kill | ToGuest::Credit(..) | ToGuest::Stdin(_) | ToGuest::StdinEnd, None) => {}
        }
        Ok(Flow::Continue(()))
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
                self.send(id, FromGuest::Failed(stage, errno))?;
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
        self.kill_orphans().map(|_| ())
    }

    /// Kills descendants of the guest that have no keeper, and keepers that have nothing to keep. Returns whether none is left.
    fn kill_orphans(&self) -> io::Result<bool> {
        let keepers = self
            .jobs
            .values()
            .filter_map(Job::active_keeper)
            .chain(&self.released);
        let keepers: Vec<i32> = keepers.map(|keeper| keeper.pid).collect();
        descendants::kill(std::process::id().cast_signed(), &keepers, ORPHAN_TIMEOUT, || {})
    }

    fn forward_output(&mut self, id: u32, channel: Channel) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        match job.read_output(channel, &mut self.chunk) {
            [] => Ok(()),
            piece => FromGuest::Output(channel, piece)
                .append_to(id, &mut self.outbox.bytes)
                .map_err(io::Error::other),
        }
    }

    fn forward_input(&mut self, id: u32) -> io::Result<()> {
        let Some(job) = self.jobs.get_mut(&id) else {
            return Ok(());
        };
        let Some(stdin) = &mut job.stdin else {
            return Ok(());
        };
        // An error means that the command has closed its end.
        let written = stdin.queue.flush();
        if written.is_err() || (stdin.ended && stdin.queue.len() == 0) {
            job.stdin = None;
        }
        match u32::try_from(written.unwrap_or(0)) {
            Ok(0) | Err(_) => Ok(()),
            Ok(written) => self.send(id, FromGuest::Credit(written)),
        }
    }

    /// Ends all running commands. Their input stays open until they are dead: a command must not take a part of its
    /// input for all of it.
    fn end_jobs(&self) {
        // Ask all keepers first, then wait for each. Errors mean that a keeper is already gone.
        for KeeperLink { stream, pid } in self.jobs.values().map(|job| &job.keeper) {
            let _ = stream.shutdown(Shutdown::Write);
            sys::send_signal(Signal::Continue, *pid);
        }
        for job in self.jobs.values() {
            let _ = job.keeper.stream.set_read_timeout(Some(keeper::KILL_TIMEOUT * 2));
            while job.keeper.read_report().is_some() {}
        }
    }

    /// Creates the streams of a command and forks its keeper. Returns the keeper's streams in the process that is to be
    /// the keeper.
    fn start_job(&mut self, id: u32, start: &StartCommand<'_>) -> io::Result<Option<KeeperStreams>> {
        let (own_stdout, stdout) = io::pipe()?;
        let (own_stderr, stderr) = io::pipe()?;
        let (mut stdin, mut own_stdin) = (Stdio::null(), None);
        if start.has_stdin {
            let (reader, writer) = io::pipe()?;
            stdin = reader.into();
            own_stdin = Some(StdinPipe {
                queue: WriteQueue::new(writer.into())?,
                ended: false,
            });
        }
        let (stream, guest) = UnixStream::pair()?;
        match sys::fork_process()? {
            ForkSide::Parent { child: pid } => {
                let link = KeeperLink { stream, pid };
                let job = Job::new(link, own_stdin, [own_stdout, own_stderr], start.limits);
                self.jobs.insert(id, job);
                Ok(None)
            }
            ForkSide::Child => Ok(Some(KeeperStreams {
                stdin,
                stdout: stdout.into(),
                stderr: stderr.into(),
                guest,
            })),
        }
    }
}
