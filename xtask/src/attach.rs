// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask vm --attach`: a second shell in a VM that is running, whatever runs in it.
//!
//! The VM's init keeps a shell on a console of its own (`serve_second_shell`), which QEMU offers as a
//! socket. It stays as it was left when somebody detaches, as on a serial line.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use crate::error::{Error, InFile};
use crate::qemu::{SECOND_SHELL, SOCKET_DIR};
use crate::terminal;

/// Ends the connection and leaves the shell alone: Ctrl-], as telnet has it.
const DETACH: u8 = 0x1d;
/// What init writes when the shell has ended.
const END_OF_TRANSMISSION: u8 = 0x04;

/// `cargo xtask vm --attach`, to the VM of this xtask process or the only one.
pub(crate) fn run(process: Option<u32>) -> Result<u8, Error> {
    let dir = choose(running(&std::env::temp_dir())?, process)?;
    let _attached = claim(&dir)?;
    let path = dir.join(SECOND_SHELL);
    let mut shell = UnixStream::connect(&path).in_file(&path)?;
    let raw = terminal::Raw::enter();
    if raw.is_some() {
        eprint!("xtask: Ctrl-] detaches\r\n");
    }
    shell.write_all(greeting().as_bytes()).in_file(&path)?;
    pass_on_input(&shell, raw.is_some()).in_file(&path)?;
    show(shell, &mut io::stdout().lock()).in_file(&path)?;
    drop(raw);
    println!();
    Ok(0)
}

/// The socket directories of this user's VMs, by the process that runs each.
fn running(temporary: &Path) -> Result<Vec<(u32, PathBuf)>, Error> {
    let me = Path::new("/proc/self");
    let user = fs::metadata(me).in_file(me)?.uid();
    let mut found = Vec::new();
    for entry in fs::read_dir(temporary).in_file(temporary)? {
        let path = entry.in_file(temporary)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let process = name.and_then(|name| name.strip_prefix(SOCKET_DIR)?.parse().ok());
        // Somebody else's file may vanish meanwhile.
        let owner = fs::metadata(path.join(SECOND_SHELL)).map(|metadata| metadata.uid());
        if let (Some(process), Ok(owner)) = (process, owner)
            && owner == user
            && Path::new("/proc").join(format!("{process}")).exists()
        {
            found.push((process, path));
        }
    }
    Ok(found)
}

fn choose(mut running: Vec<(u32, PathBuf)>, wanted: Option<u32>) -> Result<PathBuf, Error> {
    running.retain(|(process, _)| wanted.is_none_or(|wanted| wanted == *process));
    running.sort();
    match &running[..] {
        [(_, dir)] => Ok(dir.clone()),
        [] => Err(Error::Other(
            "no such VM is running; cargo xtask vm boots one".to_owned(),
        )),
        several => {
            let processes: Vec<_> = several.iter().map(|(id, _)| id.to_string()).collect();
            Err(Error::Other(format!(
                "several VMs are running; add the process of one to --attach: {}",
                processes.join(", ")
            )))
        }
    }
}

/// QEMU lets a second client wait without a word.
fn claim(dir: &Path) -> Result<File, Error> {
    let path = dir.join("attached");
    let file = File::create(&path).in_file(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Other(
            "somebody is attached to the second shell already".to_owned(),
        )),
        Err(TryLockError::Error(source)) => Err(Error::File { path, source }),
    }
}

/// The first command: the shell learns what terminal it has now.
fn greeting() -> String {
    let (rows, columns) = terminal::size();
    let term = terminal::kind();
    format!(" export TERM={term}; stty rows {rows} cols {columns}; welcome\n")
}

/// Standard input goes to the shell, in a thread that ends with the process.
fn pass_on_input(shell: &UnixStream, is_terminal: bool) -> io::Result<()> {
    let mut shell = shell.try_clone()?;
    thread::spawn(move || {
        let mut buffer = [0; 4 << 10];
        while let Ok(count @ 1..) = io::stdin().read(&mut buffer) {
            let keys = &buffer[..count];
            let detaches = is_terminal && keys.contains(&DETACH);
            if detaches || shell.write_all(keys).is_err() {
                break;
            }
        }
        // The end of a pipe is no reason to leave: what it asked for may still be running.
        if is_terminal {
            let _ = shell.shutdown(std::net::Shutdown::Both);
        }
    });
    Ok(())
}

/// Shows what the shell writes until it ends, somebody detaches, or the VM is gone.
fn show(mut shell: impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = shell.read(&mut buffer) {
        let text = &buffer[..count];
        let end = text.iter().position(|byte| *byte == END_OF_TRANSMISSION);
        to.write_all(&text[..end.unwrap_or(count)])?;
        to.flush()?;
        if end.is_some() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_vm_needs_no_name_and_several_do() {
        let vm = |id: u32| (id, PathBuf::from(id.to_string()));
        assert!(choose(vec![], None).is_err());
        assert!(choose(vec![vm(7)], Some(8)).is_err());
        assert_eq!(choose(vec![vm(7)], None).ok(), Some("7".into()));
        assert_eq!(choose(vec![vm(7), vm(8)], Some(8)).ok(), Some("8".into()));
        let error = choose(vec![vm(8), vm(7)], None).expect_err("which?");
        assert!(error.to_string().ends_with("7, 8"), "{error}");
    }

    #[test]
    fn the_shells_end_is_not_shown_and_nothing_after_it() {
        let mut shown = Vec::new();
        show(&b"logout\r\n\x04apm:/# "[..], &mut shown).expect("memory");
        assert_eq!(shown, b"logout\r\n");
    }
}
