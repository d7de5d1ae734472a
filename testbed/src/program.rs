// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that run while things are broken: their lines with the time, and how they end.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;

use crate::clock::Moment;
use crate::failure::Failure;
use crate::host::Host;
use crate::wait::{self, Seen};

/// Lines kept of a program; of what is older, the first half is forgotten.
const KEPT_LINES: usize = 20_000;

/// A line that a program printed.
#[derive(Clone, Debug)]
pub struct Line {
    /// When it was read.
    pub at: Moment,
    /// Without its end.
    pub text: String,
}

type OnLine = Box<dyn FnMut(&Line) + Send>;

/// A running program; killed when dropped.
pub struct Program {
    name: String,
    child: Child,
    ended: Option<ExitStatus>,
    lines: Arc<Mutex<Vec<Line>>>,
    readers: Vec<JoinHandle<()>>,
}

impl Program {
    /// Starts `words` as `host`; the first of the names it is known by is `name`.
    ///
    /// # Errors
    /// [`Failure::Start`] if it does not start.
    pub fn start(name: &str, host: Host, words: &[&str]) -> Result<Self, Failure> {
        Self::start_watched(name, host, words, |_| ())
    }

    /// The same; every line is shown to `on_line` as it comes.
    ///
    /// # Errors
    /// [`Failure::Start`] if it does not start.
    pub fn start_watched(
        name: &str,
        host: Host,
        words: &[&str],
        on_line: impl FnMut(&Line) + Send + 'static,
    ) -> Result<Self, Failure> {
        let mut command = Command::new(host.name());
        command.args(words);
        Self::spawn(name, command, Box::new(on_line))
    }

    fn spawn(name: &str, mut command: Command, on_line: OnLine) -> Result<Self, Failure> {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| Failure::Start {
                command: name.to_owned(),
                source,
            })?;
        let lines = Arc::new(Mutex::new(Vec::new()));
        let on_line = Arc::new(Mutex::new(on_line));
        let stdout = child.stdout.take().map(|pipe| read(pipe, &lines, &on_line));
        let stderr = child.stderr.take().map(|pipe| read(pipe, &lines, &on_line));
        let readers = stdout.into_iter().chain(stderr).collect();
        Ok(Self {
            name: name.to_owned(),
            child,
            ended: None,
            lines,
            readers,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it printed so far, stdout and stderr as they came.
    pub fn lines(&self) -> Vec<Line> {
        self.lines
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How it ended, if it has.
    ///
    /// # Errors
    /// [`Failure::Start`] if the system does not tell.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().map_err(|source| Failure::Start {
                command: self.name.clone(),
                source,
            })?;
            if self.ended.is_some() {
                self.join();
            }
        }
        Ok(self.ended)
    }

    /// Fails unless it still runs.
    ///
    /// # Errors
    /// [`Failure::NotShown`] if it has ended.
    pub fn ensure_running(&mut self) -> Result<(), Failure> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => Err(Failure::not_shown(format!(
                "{} ended too early: {status}: {}",
                self.name,
                self.last_line()
            ))),
        }
    }

    /// The last line that it printed.
    pub fn last_line(&self) -> String {
        self.lines()
            .last()
            .map_or_else(|| "it said nothing".to_owned(), |line| line.text.clone())
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// [`Failure::Timeout`] after `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus, Failure> {
        wait::until(&format!("{} ends", self.name.clone()), limit, || {
            Ok(match self.ended()? {
                Some(status) => Seen::Ready(status),
                None => Seen::NotYet(self.last_line()),
            })
        })
    }

    /// Waits until it prints a line that `wanted` likes.
    ///
    /// # Errors
    /// [`Failure::Timeout`] after `limit`; [`Failure::NotShown`] if it ends without.
    pub fn wait_for_line(
        &mut self,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&str) -> bool,
    ) -> Result<Line, Failure> {
        wait::until(&format!("{} says {what}", self.name.clone()), limit, || {
            let running = self.ended()?.is_none();
            match self.lines().into_iter().find(|line| wanted(&line.text)) {
                Some(line) => Ok(Seen::Ready(line)),
                None if running => Ok(Seen::NotYet(self.last_line())),
                None => self.ensure_running().map(|()| Seen::NotYet(String::new())),
            }
        })
    }

    /// Sends it a signal; nothing happens if it has ended.
    ///
    /// # Errors
    /// [`Failure::Start`] if the system refuses.
    pub fn signal(&mut self, signal: Signal) -> Result<(), Failure> {
        if self.ended()?.is_some() {
            return Ok(());
        }
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX));
        signal::kill(pid, signal).map_err(|errno| Failure::Start {
            command: self.name.clone(),
            source: errno.into(),
        })
    }

    fn join(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader that panicked has said so; its lines are what there is.
            drop(reader.join());
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if self.ended.is_none() {
            // It may have ended by itself meanwhile.
            drop(self.child.kill());
            drop(self.child.wait());
        }
    }
}

fn read(
    pipe: impl Read + Send + 'static,
    lines: &Arc<Mutex<Vec<Line>>>,
    on_line: &Arc<Mutex<OnLine>>,
) -> JoinHandle<()> {
    let lines = Arc::clone(lines);
    let on_line = Arc::clone(on_line);
    thread::spawn(move || {
        for text in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&text).into_owned();
            let line = Line {
                at: Moment::now(),
                text,
            };
            (on_line.lock().unwrap_or_else(PoisonError::into_inner))(&line);
            let mut lines = lines.lock().unwrap_or_else(PoisonError::into_inner);
            if lines.len() >= KEPT_LINES {
                lines.drain(..KEPT_LINES / 2);
            }
            lines.push(line);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program::spawn("script", command, Box::new(|_| ())).expect("sh starts")
    }

    #[test]
    fn lines_and_status_are_kept() {
        let mut program = shell("echo one; echo two >&2; exit 3");
        let status = program.wait(Duration::from_secs(60)).expect("it ends");
        assert_eq!(status.code(), Some(3));
        let mut texts: Vec<_> = program.lines().into_iter().map(|line| line.text).collect();
        texts.sort();
        assert_eq!(texts, ["one", "two"]);
        let why = program
            .ensure_running()
            .err()
            .map(|failure| failure.to_string());
        assert!(why.is_some_and(|why| why.starts_with("script ended too early: exit status: 3")));
    }

    #[test]
    fn lines_are_waited_for_and_signals_end_it() {
        let mut program = shell("echo ready; exec sleep 1000");
        let line = program
            .wait_for_line("ready", Duration::from_secs(60), |line| line == "ready")
            .expect("it says so");
        assert_eq!(line.text, "ready");
        program.ensure_running().expect("it runs");
        program.signal(Signal::SIGTERM).expect("it is ours");
        let status = program.wait(Duration::from_secs(60)).expect("it ends");
        assert_eq!(status.code(), None);
        program.signal(Signal::SIGTERM).expect("nothing happens");
    }

    #[test]
    fn a_line_that_never_comes_is_a_failure() {
        let mut program = shell("echo no");
        let failure = program.wait_for_line("yes", Duration::from_secs(60), |line| line == "yes");
        assert!(failure.is_err());
    }
}
