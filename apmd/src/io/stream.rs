// SPDX-License-Identifier: MIT OR Apache-2.0
//! Byte streams that clients call on: a Unix socket, or a TCP port that a file names.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use acm::User;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use super::person::Person;
use super::socket_file::{ListenError, at, clear_the_way};

/// What is listened on. Its files go with it.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: Socket,
    files: Files,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixListener),
    Tcp(TcpListener),
}

/// The file by which clients find the service, and a second name of it.
#[derive(Debug)]
struct Files {
    path: PathBuf,
    link: Option<PathBuf>,
}

/// A client's connection. It does not block.
#[derive(Debug)]
pub(crate) enum Stream {
    /// On the Unix socket.
    Unix(UnixStream),
    /// On the TCP port.
    Tcp(TcpStream),
}

impl Listener {
    /// Listens on the Unix socket `path`, with access `mode`. `link` becomes a symbolic link to it.
    ///
    /// # Errors
    /// Somebody listens there, something else is there, or the system says no.
    pub(crate) fn unix(path: &Path, link: Option<&Path>, mode: u32) -> Result<Self, ListenError> {
        clear_the_way(path, call)?;
        let io = at(path);
        let socket = UnixListener::bind(path).map_err(&io)?;
        let files = Files::of(path);
        socket.set_nonblocking(true).map_err(&io)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(&io)?;
        Self::new(Socket::Unix(socket), files, link)
    }

    /// Listens on a TCP port of `address`, and writes its number into the file `path`. `link`
    /// becomes a symbolic link to that.
    ///
    /// # Errors
    /// The port is in use, or the system says no.
    pub(crate) fn tcp(
        address: SocketAddr,
        path: &Path,
        link: Option<&Path>,
    ) -> Result<Self, ListenError> {
        let socket = TcpListener::bind(address).map_err(at(Path::new(&address.to_string())))?;
        let io = at(path);
        socket.set_nonblocking(true).map_err(&io)?;
        let port = socket.local_addr().map_err(&io)?.port();
        fs::write(path, format!("{port}\n")).map_err(&io)?;
        let files = Files::of(path);
        // Clients of other users read it, whatever the umask.
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).map_err(&io)?;
        Self::new(Socket::Tcp(socket), files, link)
    }

    fn new(socket: Socket, mut files: Files, link: Option<&Path>) -> Result<Self, ListenError> {
        if let Some(link) = link {
            files.add_link(link)?;
        }
        Ok(Self { socket, files })
    }

    /// The file by which clients find it.
    pub(crate) fn path(&self) -> &Path {
        &self.files.path
    }

    /// The TCP port.
    pub(crate) fn port(&self) -> Option<u16> {
        match &self.socket {
            Socket::Unix(_) => None,
            Socket::Tcp(socket) => Some(socket.local_addr().ok()?.port()),
        }
    }

    /// The next client; `None` when nobody waits.
    ///
    /// # Errors
    /// Mostly: no file descriptor left.
    pub(crate) fn accept(&self) -> io::Result<Option<Stream>> {
        let accepted = match &self.socket {
            Socket::Unix(socket) => socket.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                Ok(Stream::Unix(stream))
            }),
            Socket::Tcp(socket) => socket.accept().and_then(|(stream, _)| {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }),
        };
        match accepted {
            Ok(stream) => Ok(Some(stream)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Calls on whoever listens there, without waiting: another service may hang and have a full line of callers.
fn call(path: &Path) -> io::Result<mio::net::UnixStream> {
    mio::net::UnixStream::connect(path)
}

impl Files {
    fn of(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            link: None,
        }
    }

    /// A link of another service's is replaced; anything else is not.
    fn add_link(&mut self, link: &Path) -> Result<(), ListenError> {
        let io = at(link);
        match fs::symlink_metadata(link) {
            Ok(found) if found.is_symlink() => fs::remove_file(link).map_err(&io)?,
            Ok(found) if found.file_type().is_socket() => {
                clear_the_way(link, call)?;
            }
            Ok(_) => return Err(io(io::ErrorKind::AlreadyExists.into())),
            Err(_) => {}
        }
        let target = match (self.path.parent(), self.path.file_name()) {
            (parent, Some(name)) if parent == link.parent() => Path::new(name),
            _ => &self.path,
        };
        symlink(target, link).map_err(&io)?;
        self.link = Some(link.to_owned());
        Ok(())
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        for path in self.link.iter().chain([&self.path]) {
            if let Err(error) = fs::remove_file(path) {
                tracing::debug!(path = %path.display(), %error, "not removed");
            }
        }
    }
}

fn user_by_tcp(from: SocketAddr) -> io::Result<User> {
    let is_own = from.ip().to_canonical().is_loopback() || is_own(from)?;
    Ok(User::by_tcp(from.ip(), is_own))
}

/// Whether an address is this host's: a socket can be bound to it. Where `ip_nonlocal_bind` has bind(2) take any address,
/// or that cannot be read, the route counts. Neither sends anything.
fn is_own(address: SocketAddr) -> io::Result<bool> {
    let address = canonical(address);
    let family = if address.is_ipv4() { "ipv4" } else { "ipv6" };
    let takes_any = fs::read_to_string(format!("/proc/sys/net/{family}/ip_nonlocal_bind"));
    if takes_any.is_ok_and(|value| value.trim() == "0") {
        let mut any_port = address;
        any_port.set_port(0);
        return match UdpSocket::bind(any_port) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => Ok(false),
            Err(error) => Err(error),
        };
    }
    has_own_route(address)
}

/// Whether the route to an address has the address itself as its source. That of an interface's second address in a
/// network has the first one: it is taken for another host's.
fn has_own_route(address: SocketAddr) -> io::Result<bool> {
    let any = match address {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    let source = socket.connect(address).and_then(|()| socket.local_addr());
    Ok(source.is_ok_and(|source| source.ip() == address.ip()))
}

/// The scope stays, which a link-local address needs.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        IpAddr::V4(ip) => SocketAddr::new(ip.into(), address.port()),
        IpAddr::V6(_) => address,
    }
}

impl Stream {
    /// Who is charged for what the caller takes: a user of this host, or another host.
    ///
    /// # Errors
    /// If the caller has disconnected, or no descriptor is free to find out who it is.
    pub(crate) fn user(&self) -> io::Result<User> {
        Ok(match self {
            Self::Unix(stream) => {
                let uid = getsockopt(stream, PeerCredentials)?.uid();
                User::Local(Person::of(uid).uid())
            }
            Self::Tcp(stream) => user_by_tcp(stream.peer_addr()?)?,
        })
    }

    /// The address of who came by TCP.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(stream) => Some(stream.peer_addr().ok()?.ip().to_canonical()),
        }
    }

    /// Reads what is there, as far as `buffer` has room; 0 at the end.
    ///
    /// # Errors
    /// Nothing is there, or the connection is broken.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(stream) => stream.read(buffer),
            Self::Tcp(stream) => stream.read(buffer),
        }
    }

    /// Writes as much as there is room for; how much.
    ///
    /// # Errors
    /// The connection is broken.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = match self {
            Self::Unix(stream) => stream.write(bytes),
            Self::Tcp(stream) => stream.write(bytes),
        };
        match written {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            written => written,
        }
    }
}

impl AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        match &self.socket {
            Socket::Unix(socket) => socket.as_raw_fd(),
            Socket::Tcp(socket) => socket.as_raw_fd(),
        }
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.as_fd(),
        }
    }
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::super::own_network::{in_own_network, ip};
    use super::*;

    fn dir() -> PathBuf {
        let name = format!(
            "apmd-stream-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        );
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_socket_has_two_names_and_leaves_none() {
        let dir = dir();
        let (path, link) = (dir.join("acm-unix.sock"), dir.join("acm.sock"));
        let listener = Listener::unix(&path, Some(&link), 0o666).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("acm-unix.sock"));
        let mut client = UnixStream::connect(&link).unwrap();
        let mut served = listener.accept().unwrap().unwrap();
        assert!(listener.accept().unwrap().is_none());
        client.write_all(b"request").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(served.read(&mut buffer).unwrap(), 7);
        let taken = Listener::unix(&path, None, 0o666).unwrap_err();
        assert!(matches!(taken, ListenError::InUse(_)));
        drop(listener);
        assert!(!path.exists() && fs::symlink_metadata(&link).is_err());
        fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn who_calls_from_an_address_of_this_host_is_of_this_host() {
        let user = |ip: IpAddr| user_by_tcp((ip, 4000).into()).unwrap();
        assert_eq!(user([127, 0, 0, 1].into()), User::LocalByTcp);
        assert_eq!(user([127, 9, 0, 2].into()), User::LocalByTcp);
        assert_eq!(user(Ipv6Addr::LOCALHOST.into()), User::LocalByTcp);
        assert!(user([192, 0, 2, 1].into()).host().is_some());
    }

    /// In a network of its own, with second addresses.
    #[test]
    fn every_address_of_this_host_is_its_own() {
        in_own_network(its_addresses_are_its_own);
    }

    fn its_addresses_are_its_own() {
        for line in [
            "link set lo up",
            "address add 10.1.0.1/32 dev lo",
            "address add 10.2.0.1/30 dev lo",
            "address add 10.2.0.2/30 dev lo",
            "address add fd01::1/128 dev lo nodad",
            "address add fd01::2/128 dev lo nodad",
        ] {
            ip(line);
        }
        let address = |ip: &str| SocketAddr::new(ip.parse().unwrap(), 4000);
        for own in [
            "10.1.0.1",
            "10.2.0.2",
            "::ffff:10.2.0.2",
            "fd01::1",
            "fd01::2",
        ] {
            let user = user_by_tcp(address(own)).unwrap();
            assert_eq!(user, User::LocalByTcp, "{own}");
        }
        for other in ["10.1.0.3", "10.2.0.5", "fd01::3", "fd02::1"] {
            let user = user_by_tcp(address(other)).unwrap();
            assert!(user.host().is_some(), "{other}");
        }
        let by_route = ["10.1.0.1", "fd01::2", "10.2.0.2", "10.1.0.3"];
        let by_route = by_route.map(|ip| has_own_route(address(ip)).unwrap());
        assert_eq!(by_route, [true, true, false, false]);
    }

    /// It takes no caller, and as many wait as may.
    #[test]
    fn a_service_that_hangs_is_not_waited_for() {
        let dir = dir();
        let (path, link) = (dir.join("acm-unix.sock"), dir.join("acm.sock"));
        let hung = UnixListener::bind(&link).unwrap();
        let few = nix::sys::socket::Backlog::new(1).unwrap();
        nix::sys::socket::listen(&hung, few).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| call(&link).ok()).collect();
        let (done, is_done) = std::sync::mpsc::channel();
        let listening = {
            let (path, link) = (path.clone(), link.clone());
            std::thread::spawn(move || {
                let alone = Listener::unix(&link, None, 0o666).map(drop);
                let linked = Listener::unix(&path, Some(&link), 0o666).map(drop);
                done.send([alone, linked])
            })
        };
        let refused = is_done.recv_timeout(std::time::Duration::from_secs(30));
        drop((hung, waiting));
        listening.join().unwrap().unwrap();
        for refused in refused.expect("nobody is waited for") {
            assert!(matches!(refused, Err(ListenError::InUse(_))), "{refused:?}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn what_is_no_socket_stays() {
        let dir = dir();
        let path = dir.join("file");
        fs::write(&path, "precious").unwrap();
        let refused = Listener::unix(&path, None, 0o666).unwrap_err();
        assert!(matches!(refused, ListenError::NotASocket(_)));
        let refused = Listener::unix(&dir.join("s"), Some(&path), 0o666).unwrap_err();
        assert!(matches!(refused, ListenError::Io { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_port_is_named_by_a_file() {
        let dir = dir();
        let path = dir.join("acm.port");
        // What another service left there, for itself only.
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Listener::tcp(any, &path, None).unwrap();
        let port: u16 = fs::read_to_string(&path).unwrap().trim().parse().unwrap();
        assert_eq!(listener.port(), Some(port));
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        let _client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        assert!(matches!(listener.accept().unwrap(), Some(Stream::Tcp(_))));
        fs::remove_dir_all(&dir).unwrap();
    }
}
