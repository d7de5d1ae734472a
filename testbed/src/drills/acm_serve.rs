// SPDX-License-Identifier: MIT OR Apache-2.0
//! apmd in ibacm's place: ib_acme is told what ibacm tells it, and a program by AF_IB connects while
//! the subnet manager is cut off.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use cm_msgs::Gid;
use cm_msgs::acm::{Address, Flags, Header, MAX_LEN, Resolve, Status};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::command;
use crate::daemon::Policy;
use crate::failure::{Failure, ensure};
use crate::file::{DIRECTORY, write};
use crate::host::Host;
use crate::ib_acme::{ask, is_path, wait_path};
use crate::link::Link;
use crate::observe;
use crate::port::Port;
use crate::program::Program;
use crate::saquery::{self, Record};
use crate::wait::{self, Seen};
use crate::world::Kind;

use super::{Context, Drill, Part};

/// The drill.
pub(super) const DRILL: Drill = Drill {
    name: "acm-serve",
    about: "apmd in ibacm's place: ib_acme, an AF_IB program without the SA, a raw client",
    parts: &[
        Part {
            world: Kind::Flat,
            run: run_flat,
        },
        Part {
            world: Kind::Netns,
            run: run_netns,
        },
    ],
};

/// What host A's daemon is told.
const POLICY: Policy = Policy {
    sections: "[acm]\nserve = true\ntcp_port = 6125\nkernel = false\n\
        data_dir = \"/run/drill\"\n",
    ..Policy::NORMAL
};

/// ibacm's options; apmd reads the same data files.
const OPTIONS: &str = "addr_preload acm_hosts\naddr_data_file /run/drill/ibacm_hosts.data\n\
    route_prot sa\nloopback_prot local\n";

/// Where the services are called.
const SOCKET: &str = "/run/ibacm.sock";

/// Bound for a service to come up, and for something to be seen.
const LIMIT: Duration = Duration::from_secs(60);

/// Requests of the raw client in one go.
const PIPELINED: u64 = 500;

fn run_flat(context: &mut Context<'_>) -> Result<(), Failure> {
    let [a, b] = [Host::A.port(1).gid()?, Host::B.port(1).gid()?];
    write_files(&b)?;
    let questions = questions(&a, &b)?;
    let paths = same_answers(context, &questions)?;
    context.report.set("invocations", questions.len());
    context.report.set("answered_with_a_path", paths);
    further_questions(&b)?;
    raw_client(context, &b)?;
    a_link_changes(context)?;
    a_host_goes(context, &b)?;
    context.world.stop_daemons()
}

/// Names of host A's ports, and the file in which host B's is an address and a name.
fn write_files(b: &str) -> Result<(), Failure> {
    write(format!("{DIRECTORY}/ibacm_opts.cfg"), OPTIONS)?;
    write(
        format!("{DIRECTORY}/ibacm_addr.cfg"),
        "node-a shca0 1 default\nnode-a2 shca0 2 default\n",
    )?;
    let hosts = format!("10.0.1.2 {b}\nnode-b {b}\n");
    write(format!("{DIRECTORY}/ibacm_hosts.data"), &hosts)
}

/// Command lines to which both services have the same answer.
fn questions(a: &str, b: &str) -> Result<Vec<String>, Failure> {
    let [slid, dlid] = [Host::A.port(1).lid()?, Host::B.port(1).lid()?];
    let lines = [
        format!("-f g -s {a} -d {b} -v"),
        format!("-f g -s {a} -d {b} -c"),
        format!("-f g -s {a} -d {a} -v"),
        format!("-f l -s {slid} -d {dlid} -v"),
        format!("-f l -s {slid} -d {dlid} -c"),
        "-f n -s node-a -d node-b -v".to_owned(),
        "-f n -s node-a -d node-b -c".to_owned(),
        "-f n -s node-a -d node-a".to_owned(),
        "-f n -s nobody -d node-b".to_owned(),
        "-f n -s node-a -d nowhere -c".to_owned(),
        format!("-f l -s {slid} -d 999"),
        "-f i -s 10.9.9.9 -d 10.0.1.2".to_owned(),
        format!("-f g -s {a} -d {b} -C 50"),
    ];
    Ok(lines.to_vec())
}

/// Questions by IP address, where there is an interface that has it.
const BY_IP: [&str; 5] = [
    "-f i -s 10.0.1.1 -d 10.0.1.2 -v",
    "-f i -s 10.0.1.1 -d 10.0.1.2 -c",
    "-f i -s 10.0.1.1 -d 10.0.1.1",
    "-f i -s 10.0.1.1 -d 10.0.1.2 -C 50",
    "-s 10.0.1.1 -d 10.0.1.2 -v",
];

/// Asks stock ibacm, then starts apmd and asks it, which says the same; how many of the answers are
/// paths.
fn same_answers(context: &mut Context<'_>, questions: &[String]) -> Result<usize, Failure> {
    let of_ibacm = ask_ibacm(context, questions)?;
    context.world.start_daemon(Host::A, POLICY)?;
    wait_served()?;
    for (question, want) in questions.iter().zip(&of_ibacm) {
        let found = ask(question)?;
        ensure(found == *want, || {
            format!("ib_acme {question}: ibacm: {want} apmd: {found}")
        })?;
    }
    Ok(of_ibacm.iter().filter(|told| is_path(told)).count())
}

/// What stock ibacm says.
fn ask_ibacm(context: &Context<'_>, questions: &[String]) -> Result<Vec<String>, Failure> {
    for name in ["ibacm_opts.cfg", "ibacm_addr.cfg"] {
        command::run(&["cp", &format!("{DIRECTORY}/{name}"), "/etc/rdma/"])?;
    }
    let mut ibacm = Program::start("ibacm", Host::A, &["ibacm", "-P"])?;
    wait_served()?;
    let answers: Result<Vec<_>, _> = questions.iter().map(|question| ask(question)).collect();
    ibacm.signal(Signal::SIGKILL)?;
    ibacm.wait(LIMIT)?;
    command::run(&["rm", "/etc/rdma/ibacm_opts.cfg", "/etc/rdma/ibacm_addr.cfg"])?;
    context.timeline.note("drill", "ibacm was asked");
    answers
}

/// Waits until a service answers for host A's port.
fn wait_served() -> Result<(), Failure> {
    let gid = Host::A.port(1).gid()?;
    wait_path(&format!("-f g -s {gid} -d {gid}")).map(drop)
}

/// What ibacm answers in other words, or not: endpoints and counters.
fn further_questions(b: &str) -> Result<(), Failure> {
    let endpoints = ask("-e")?;
    for want in ["node-a", "node-a2", ",1,0xffff,1,apmd,", "status 0x0"] {
        ensure(endpoints.contains(want), || {
            format!("ib_acme -e: no {want}: {endpoints}")
        })?;
    }
    for line in [
        "-P",
        "-P col",
        "-P 1",
        "-P 2",
        "-P all",
        "-f n -P s -s node-a",
        "-P -S localhost",
    ] {
        let counters = ask(line)?;
        ensure(
            counters.contains("Route Cache Count") && counters.contains("status 0x0"),
            || format!("ib_acme {line}: {counters}"),
        )?;
    }
    let chosen = ask(&format!("-f g -d {b}"))?;
    ensure(is_path(&chosen), || format!("without a source: {chosen}"))
}

fn parse(gid: &str) -> Result<Gid, Failure> {
    gid.parse()
        .map_err(|_| Failure::not_shown(format!("{gid} is no gid")))
}

fn io(source: std::io::Error) -> Failure {
    Failure::File {
        path: SOCKET.to_owned(),
        source,
    }
}

/// Requests that come in pieces, many in one go, and from many clients, of which some leave in the
/// middle of one.
fn raw_client(context: &mut Context<'_>, b: &str) -> Result<(), Failure> {
    let to = Address::Gid(
        b.parse()
            .map_err(|_| Failure::not_shown(format!("{b} is no gid")))?,
    );
    let source = cm_msgs::acm::Name::new("node-a").map(Address::Name);
    let source = source.map_err(|error| Failure::not_shown(error.to_string()))?;
    let mut stream = UnixStream::connect(SOCKET).map_err(io)?;
    stream.set_read_timeout(Some(LIMIT)).map_err(io)?;
    let mut requests = Vec::new();
    let mut buffer = [0; MAX_LEN];
    for tid in 0..PIPELINED {
        let request = Resolve::request(tid, Some(source), to, Flags::default());
        requests.extend_from_slice(request.encode(&mut buffer));
    }
    // First in crumbs, which is slow, then all of the rest at once.
    let (crumbs, rest) = requests.split_at(1000);
    for crumb in crumbs.chunks(7) {
        stream.write_all(crumb).map_err(io)?;
        thread::sleep(Duration::from_millis(1));
    }
    let mut many = Vec::new();
    for _ in 0..1000 {
        let mut client = UnixStream::connect(SOCKET).map_err(io)?;
        client.write_all(&requests[..100]).map_err(io)?;
        many.push(client);
    }
    stream.write_all(rest).map_err(io)?;
    let mut tids = BTreeSet::new();
    for _ in 0..PIPELINED {
        tids.insert(read_answer(&mut stream)?);
    }
    ensure(tids.len() as u64 == PIPELINED, || {
        format!("{} answers differ", tids.len())
    })?;
    // The clients that were in the middle of a request: half end it, half leave.
    for (number, mut client) in many.into_iter().enumerate() {
        if number % 2 == 0 {
            client.write_all(&requests[100..160]).map_err(io)?;
            read_answer(&mut client)?;
        }
    }
    context.report.set("pipelined", PIPELINED);
    context.report.set("clients", 1000);
    context.timeline.note("drill", "a raw client was answered");
    Ok(())
}

/// Reads an answer with a path; its number.
fn read_answer(stream: &mut UnixStream) -> Result<u64, Failure> {
    let mut answer = [0; Header::LEN + 72];
    stream.read_exact(&mut answer).map_err(io)?;
    let answer = Resolve::decode(&answer).map_err(|error| Failure::not_shown(error.to_string()))?;
    ensure(answer.status == Status::Success, || {
        format!("answered: {}", answer.status)
    })?;
    Ok(answer.tid)
}

/// The cable between the switches is pulled and plugged, which a switch reports: the path on rail A,
/// which stays, is asked for again, and the one across is there only while there is a way. After
/// either, both are what subnet administration then says.
fn a_link_changes(context: &mut Context<'_>) -> Result<(), Failure> {
    let (from, stays, goes) = (Host::A.port(1), Host::B.port(1), Host::B.port(2));
    for to in [stays, goes] {
        wait_as_sa(from, to, true)?;
    }
    let before = rechecked()?;
    context.world.pull(Link::InterSwitch)?;
    wait_as_sa(from, goes, false)?;
    wait_as_sa(from, stays, true)?;
    let pulled = wait_rechecked(before)?;
    context.timeline.note("drill", "asked for again, and gone");
    context.world.restore(Link::InterSwitch)?;
    goes.wait_active()?;
    wait_as_sa(from, goes, true)?;
    wait_as_sa(from, stays, true)?;
    let plugged = wait_rechecked(pulled)?;
    context.timeline.note("drill", "asked for again, and back");
    context.report.set("rechecked", plugged - before);
    Host::A.port(2).wait_active()
}

/// Waits until there is, or is not, a path: to saquery and to ib_acme alike, and the same one.
fn wait_as_sa(from: Port, to: Port, wanted: bool) -> Result<(), Failure> {
    let question = format!("-f g -s {} -d {}", from.gid()?, to.gid()?);
    let what = format!("from {from} to {to}, path: {wanted}");
    wait::until(&what, LIMIT, || {
        let of_sa = match saquery::paths(from, to) {
            Ok(paths) => paths.into_iter().next(),
            Err(busy) => return Ok(Seen::NotYet(busy.to_string())),
        };
        let told = ask(&question)?;
        let ours = is_path(&told).then(|| Record::parse(&told)).flatten();
        Ok(Seen::when(
            of_sa == ours && of_sa.is_some() == wanted,
            || format!("the SA: {of_sa:?}, apmd: {told}"),
        ))
    })
}

/// Paths that host A's daemon has asked for again since the fabric changed.
fn rechecked() -> Result<u64, Failure> {
    observe::acm_counter(Host::A, "rechecked")
}

fn wait_rechecked(before: u64) -> Result<u64, Failure> {
    wait::until("paths are asked for again", LIMIT, || {
        let now = rechecked()?;
        Ok(match now > before {
            true => Seen::Ready(now),
            false => Seen::NotYet(format!("{now} times, {before} before")),
        })
    })
}

/// A cable is pulled: what led to the port is forgotten, and known again when it is back.
fn a_host_goes(context: &mut Context<'_>, b: &str) -> Result<(), Failure> {
    let b = parse(b)?.to_string();
    let known = |state: &Value| {
        let destinations = state["destinations"].as_array();
        let mut destinations = destinations.into_iter().flatten();
        destinations.any(|known| known["gid"] == json!(b) && known["state"] != json!("absent"))
    };
    ensure(known(&observe::acm(Host::A)?), || {
        "the destination is not known".to_owned()
    })?;
    context.world.pull(Host::B.port(1))?;
    wait::until("what has gone is forgotten", LIMIT, || {
        let state = observe::acm(Host::A)?;
        Ok(Seen::when(!known(&state), || state.to_string()))
    })?;
    context.timeline.note("drill", "forgotten");
    let gone = ask("-f n -s node-a -d node-b -c")?;
    ensure(gone.contains("No data available"), || gone)?;
    context.world.plug(Host::B.port(1))?;
    wait_path("-f n -s node-a -d node-b").map(drop)
}

/// A program that knows nothing of apmd connects by AF_IB with the path that its librdmacm gets, and
/// can do so only because it gets one.
fn run_netns(context: &mut Context<'_>) -> Result<(), Failure> {
    write_files(&Host::B.port(1).gid()?)?;
    let paths = same_answers(context, &BY_IP.map(str::to_owned))?;
    ensure(paths == BY_IP.len(), || {
        format!("{paths} of {} answers of ibacm are paths", BY_IP.len())
    })?;
    context.report.set("paths_by_ip", paths);
    context.world.pull(Link::SubnetManager)?;
    let shown = connect(context).and_then(|()| {
        context.world.stop_daemons()?;
        ensure(!rdma_client()?, || {
            "rdma_client connects without the SA and without apmd".to_owned()
        })
    });
    context.world.restore(Link::SubnetManager)?;
    shown?;
    context
        .timeline
        .note("drill", "without apmd the program cannot connect");
    context.report.connections += 1;
    Ok(())
}

fn connect(context: &Context<'_>) -> Result<(), Failure> {
    command::run_as(Host::A, &["ip", "neigh", "flush", "all"])?;
    ensure(rdma_client()?, || "rdma_client does not connect".to_owned())?;
    let neighbours = command::run_as(Host::A, &["ip", "neigh", "show", "10.0.1.2"])?;
    ensure(neighbours.trim().is_empty(), || {
        format!("the program needed ARP: {neighbours}")
    })?;
    context.timeline.note(
        "drill",
        "rdma_client has connected by AF_IB, without ARP and without the SA",
    );
    Ok(())
}

/// Runs Debian's rdma_client against its rdma_server. Whether they met.
fn rdma_client() -> Result<bool, Failure> {
    let mut server = Program::start("rdma_server", Host::B, &["rdma_server", "-p", "7471"])?;
    thread::sleep(Duration::from_secs(1));
    server.ensure_running()?;
    let words = [
        Host::A.name(),
        "rdma_client",
        "-s",
        "10.0.1.2",
        "-p",
        "7471",
    ];
    let output = command::attempt(&words)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let met = output.status.success() && text.contains("end 0");
    if met {
        server.wait(LIMIT)?;
    }
    Ok(met)
}
