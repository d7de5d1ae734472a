// SPDX-License-Identifier: MIT OR Apache-2.0
//! apmd in ibacm's place: ib_acme is told what ibacm tells it, and a program by AF_IB connects while
//! the subnet manager is cut off.

use std::collections::BTreeSet;
use std::fs;
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
use crate::host::Host;
use crate::program::Program;
use crate::wait::{self, Seen};
use crate::world::{Kind, attribute, gid};

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
    migrate_on_port_down: true,
    sections: "[acm]\nserve = true\ntcp = \"loop\"\nkernel = false\n\
        ibacm_opts = \"/run/drill/ibacm_opts.cfg\"\nibacm_addr = \"/run/drill/ibacm_addr.cfg\"\n",
};

/// ibacm's files, as both services read them.
const OPTIONS: &str = "addr_preload acm_hosts\naddr_data_file /run/drill/ibacm_hosts.data\n\
    route_prot sa\nloopback_prot local\n";
const DIRECTORY: &str = "/run/drill";

/// Where the services are called.
const SOCKET: &str = "/run/ibacm.sock";

/// Bound for a service to come up, and for something to be seen.
const LIMIT: Duration = Duration::from_secs(60);

/// Requests of the raw client in one go.
const PIPELINED: u64 = 500;

/// The port of the subnet manager.
const SUBNET_MANAGER: [&str; 2] = ["shca2", "1"];

fn run_flat(context: &mut Context<'_>) -> Result<(), Failure> {
    let [a, b] = [gid(Host::A.port(1))?, gid(Host::B.port(1))?];
    write_files("node-b", &b)?;
    let questions = questions(&a, &b)?;
    let of_ibacm = ask_ibacm(context, &questions)?;
    context.world.start_daemon(Host::A, POLICY)?;
    wait_served(&a)?;
    for (question, want) in questions.iter().zip(&of_ibacm) {
        let found = ask(question)?;
        ensure(found == *want, || {
            format!(
                "ib_acme {}: ibacm: {want} apmd: {found}",
                question.join(" ")
            )
        })?;
    }
    context.report.set("invocations", questions.len());
    further_questions(&b)?;
    raw_client(context, &b)?;
    a_host_goes(context, &b)?;
    context.world.stop_daemons()
}

/// Names of host A's ports, and the file in which the other is an address and a name.
fn write_files(name: &str, b: &str) -> Result<(), Failure> {
    write("ibacm_opts.cfg", OPTIONS)?;
    write(
        "ibacm_addr.cfg",
        "node-a shca0 1 default\nnode-a2 shca0 2 default\n",
    )?;
    let hosts = format!("10.0.1.2 {b}\n{name} {b}\n");
    write("ibacm_hosts.data", &hosts)
}

fn write(name: &str, text: &str) -> Result<(), Failure> {
    let path = format!("{DIRECTORY}/{name}");
    let failure = |source| Failure::File {
        path: path.clone(),
        source,
    };
    fs::create_dir_all(DIRECTORY).map_err(failure)?;
    fs::write(&path, text).map_err(failure)
}

/// Command lines to which both services have the same answer.
fn questions(a: &str, b: &str) -> Result<Vec<Vec<String>>, Failure> {
    let [slid, dlid] = [lid(Host::A)?, lid(Host::B)?].map(|lid| lid.to_string());
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
    let words = |line: &String| line.split(' ').map(str::to_owned).collect();
    Ok(lines.iter().map(words).collect())
}

fn lid(host: Host) -> Result<u16, Failure> {
    let text = attribute(host.port(1), "lid")?;
    let number = u16::from_str_radix(text.trim_start_matches("0x"), 16);
    number.map_err(|_| Failure::Output {
        source_name: "lid".to_owned(),
        problem: format!("not a number: {text}"),
    })
}

/// What ib_acme prints, and how it ends.
fn ask(question: &[String]) -> Result<String, Failure> {
    let mut words = vec!["ib_acme"];
    words.extend(question.iter().map(String::as_str));
    let output = command::attempt(&words)?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(format!("{}{}", text, output.status))
}

fn ask_words(line: &str) -> Result<String, Failure> {
    let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
    ask(&words)
}

/// What stock ibacm says.
fn ask_ibacm(context: &Context<'_>, questions: &[Vec<String>]) -> Result<Vec<String>, Failure> {
    for name in ["ibacm_opts.cfg", "ibacm_addr.cfg"] {
        command::run(&["cp", &format!("{DIRECTORY}/{name}"), "/etc/rdma/"])?;
    }
    let mut ibacm = Program::start("ibacm", Host::A, &["ibacm", "-P"])?;
    let first = gid(Host::A.port(1))?;
    wait_served(&first)?;
    let answers: Result<Vec<_>, _> = questions.iter().map(|question| ask(question)).collect();
    ibacm.signal(Signal::SIGKILL)?;
    ibacm.wait(LIMIT)?;
    command::run(&["rm", "/etc/rdma/ibacm_opts.cfg", "/etc/rdma/ibacm_addr.cfg"])?;
    context.timeline.note("drill", "ibacm was asked");
    answers
}

/// Waits until a service answers for this port.
fn wait_served(gid: &str) -> Result<(), Failure> {
    let line = format!("-f g -s {gid} -d {gid}");
    wait::until("ib_acme is answered", LIMIT, || {
        let answer = ask_words(&line)?;
        Ok(Seen::when(answer.contains("dlid"), || answer))
    })
}

/// What ibacm answers in other words, or not: endpoints and counters.
fn further_questions(b: &str) -> Result<(), Failure> {
    let endpoints = ask_words("-e")?;
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
        let counters = ask_words(line)?;
        ensure(
            counters.contains("Route Cache Count") && counters.contains("status 0x0"),
            || format!("ib_acme {line}: {counters}"),
        )?;
    }
    let chosen = ask_words(&format!("-f g -d {b}"))?;
    ensure(chosen.contains("dlid"), || {
        format!("without a source: {chosen}")
    })
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

/// A cable is pulled: what led to the port is forgotten, and known again when it is back.
fn a_host_goes(context: &mut Context<'_>, b: &str) -> Result<(), Failure> {
    let b = parse(b)?.to_string();
    let known = |state: &Value| {
        let destinations = state["destinations"].as_array();
        let mut destinations = destinations.into_iter().flatten();
        destinations.any(|known| known["gid"] == json!(b) && known["state"] != json!("absent"))
    };
    ensure(known(&state()?), || {
        "the destination is not known".to_owned()
    })?;
    context.world.pull(Host::B.port(1))?;
    wait::until("what has gone is forgotten", LIMIT, || {
        let state = state()?;
        Ok(Seen::when(!known(&state), || state.to_string()))
    })?;
    context.timeline.note("drill", "forgotten");
    let gone = ask_words("-f n -s node-a -d node-b -c")?;
    ensure(gone.contains("No data available"), || gone)?;
    context.world.plug(Host::B.port(1))?;
    wait::until("it is found again", LIMIT, || {
        let answer = ask_words("-f n -s node-a -d node-b")?;
        Ok(Seen::when(answer.contains("dlid"), || answer))
    })
}

/// What `apmctl acm show` says of host A.
fn state() -> Result<Value, Failure> {
    let text = command::run_as(Host::A, &["apmctl", "-j", "acm", "show"])?;
    serde_json::from_str(&text).map_err(|error| Failure::Output {
        source_name: "apmctl acm show".to_owned(),
        problem: error.to_string(),
    })
}

/// A program that knows nothing of apmd connects by AF_IB with the path that its librdmacm gets, and
/// can do so only because it gets one.
fn run_netns(context: &mut Context<'_>) -> Result<(), Failure> {
    write_files("node-b", &gid(Host::B.port(1))?)?;
    context.world.start_daemon(Host::A, POLICY)?;
    wait::until("the path is known", LIMIT, || {
        let answer = ask_words("-s 10.0.1.1 -d 10.0.1.2")?;
        Ok(Seen::when(answer.contains("dlid"), || answer))
    })?;
    cable("pull")?;
    context
        .timeline
        .note("drill", "the subnet manager is cut off");
    let shown = connect(context).and_then(|()| {
        context.world.stop_daemons()?;
        ensure(!rdma_client()?, || {
            "rdma_client connects without the SA and without apmd".to_owned()
        })
    });
    cable("plug")?;
    shown?;
    context
        .timeline
        .note("drill", "without apmd the program cannot connect");
    context.report.connections += 1;
    Ok(())
}

fn cable(verb: &str) -> Result<(), Failure> {
    let [device, port] = SUBNET_MANAGER;
    command::run(&["cable", verb, device, port]).map(drop)
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
