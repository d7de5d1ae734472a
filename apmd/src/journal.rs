// SPDX-License-Identifier: MIT OR Apache-2.0
//! systemd's journal as the reader of stderr: it wants the priority of a line before it, as `sd-daemon(3)` says.

use std::os::unix::fs::MetadataExt;
use std::{env, fmt, fs};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Whether stderr goes to the journal. `JOURNAL_STREAM` has the device and inode of the stream that systemd opened. A
/// process with a redirected stderr inherits the variable too, so both numbers are compared.
pub(crate) fn is_stderr() -> bool {
    let stderr = fs::metadata("/dev/stderr").ok();
    let stream = env::var("JOURNAL_STREAM").ok();
    let names = |(stderr, stream): (fs::Metadata, String)| {
        stream == format!("{}:{}", stderr.dev(), stderr.ino())
    };
    stderr.zip(stream).is_some_and(names)
}

/// Lines of another format, each with its priority before it.
pub(crate) struct Prioritized<F>(pub(crate) F);

impl<S, N, F> FormatEvent<S, N> for Prioritized<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        write!(writer, "<{}>", priority(*event.metadata().level()))?;
        self.0.format_event(context, writer, event)
    }
}

/// The priority of `syslog(3)`.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}
