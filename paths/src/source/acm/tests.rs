// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client, with a service that does everything wrong.

use super::*;
use cm_msgs::{Gid, Guid, Lid, PKey};
use statemachine::PortId;

const TIMEOUT: Duration = Duration::from_secs(10);

fn query(number: u32) -> PathQuery {
    PathQuery {
        query: number,
        port: PortId {
            node_guid: Guid(9),
            port: 1,
        },
        sgid: Gid([1; 16]),
        dgid: Gid([2; 16]),
        slid: None,
        dlid: None,
        pkey: PKey(0xffff),
    }
}

/// A client with a question under way over connection 0, and the request.
fn asked(number: u32) -> (AcmClient, Vec<u8>) {
    let mut client = AcmClient::new(1, TIMEOUT);
    client.ask(query(number));
    assert_eq!(client.poll_action(Time(0)), Some(Action::Connect(0)));
    assert_eq!(client.poll_action(Time(0)), None);
    client.handle_open(0);
    let request = sent(&mut client);
    (client, request)
}

fn sent(client: &mut AcmClient) -> Vec<u8> {
    match client.poll_action(Time(0)) {
        Some(Action::Send(0, bytes)) => bytes,
        other => panic!("{other:?}"),
    }
}

/// What a service answers to a request.
fn answer(request: &[u8], status: Status, change: impl Fn(&mut PathRecord)) -> Vec<u8> {
    let request = Resolve::decode(request).unwrap();
    let Info::Path(mut path) = request.entries()[0].info else {
        panic!("{request:?}")
    };
    path.dlid = Lid(5);
    change(&mut path);
    let mut answer = Resolve::empty(request.tid);
    answer.status = status;
    if status == Status::Success {
        answer.push(Entry::path(Flags::WHOLE_PATH, path));
    }
    answer.encode(&mut [0; MAX_LEN]).to_vec()
}

#[test]
fn a_query_becomes_one_message_and_the_answer_paths() {
    let (mut client, request) = asked(7);
    assert_eq!(request.len(), 88);
    assert_eq!(request[..3], [1, 1, 0]);
    let bytes = answer(&request, Status::Success, |_| {});
    // It may come in pieces.
    for piece in bytes.chunks(7) {
        assert_eq!(client.poll_answer(), None);
        client.handle_bytes(0, piece);
    }
    let (number, paths) = client.poll_answer().unwrap();
    let lids: Vec<_> = paths.unwrap().iter().map(|path| path.dlid).collect();
    assert_eq!((number, lids), (7, vec![Lid(5)]));
    client.ask(query(8));
    let again = sent(&mut client);
    assert_ne!(again[8..16], request[8..16], "another number");
    assert_eq!(client.open(), 1, "over the same connection");
}

#[test]
fn statuses_say_whose_failure_it_is() {
    for (status, error) in [
        (Status::NoData, QueryError::NoPath),
        (Status::SourceAddress, QueryError::NoPath),
        (Status::TimedOut, QueryError::Timeout),
        (Status::NoMemory, QueryError::Busy),
        (Status::Other(77), QueryError::NoPath),
    ] {
        let (mut client, request) = asked(7);
        client.handle_bytes(0, &answer(&request, status, |_| {}));
        assert_eq!(client.poll_answer(), Some((7, Err(error))), "{status}");
    }
}

#[test]
fn a_path_for_something_else_is_none() {
    let (mut client, request) = asked(7);
    let bytes = answer(&request, Status::Success, |path| path.dgid = Gid([3; 16]));
    client.handle_bytes(0, &bytes);
    assert_eq!(client.poll_answer(), Some((7, Err(QueryError::NoPath))));
}

#[test]
fn one_request_at_a_time_and_connection() {
    let mut client = AcmClient::new(2, TIMEOUT);
    (0..3).for_each(|number| client.ask(query(number)));
    let actions: Vec<_> = std::iter::from_fn(|| client.poll_action(Time(0))).collect();
    assert_eq!(actions, [Action::Connect(0), Action::Connect(1)]);
    client.handle_open(0);
    let request = sent(&mut client);
    assert_eq!(client.poll_action(Time(0)), None, "the third waits");
    client.handle_bytes(0, &answer(&request, Status::Success, |_| {}));
    sent(&mut client);
}

#[test]
fn a_service_that_is_not_there_is_found_out_at_once() {
    let mut client = AcmClient::new(1, TIMEOUT);
    client.ask(query(7));
    client.poll_action(Time(0));
    client.handle_closed(0);
    let unreachable = Some((7, Err(QueryError::Unreachable)));
    assert_eq!(client.poll_answer(), unreachable);
    assert_eq!(client.poll_action(Time(0)), None);
    // It dies with a request of a connection that it has never answered.
    let (mut client, _) = asked(7);
    client.handle_closed(0);
    assert_eq!(client.poll_answer(), unreachable);
}

#[test]
fn a_restarted_service_is_asked_again() {
    let (mut client, request) = asked(7);
    client.handle_bytes(0, &answer(&request, Status::Success, |_| {}));
    assert!(client.poll_answer().is_some());
    client.ask(query(8));
    sent(&mut client);
    client.handle_closed(0);
    assert_eq!(client.poll_answer(), None);
    assert_eq!(client.poll_action(Time(0)), Some(Action::Connect(0)));
    client.handle_open(0);
    sent(&mut client);
    client.handle_closed(0);
    let unreachable = Some((8, Err(QueryError::Unreachable)));
    assert_eq!(client.poll_answer(), unreachable, "but only once");
}

#[test]
fn what_is_given_up_is_answered() {
    let (mut client, _) = asked(7);
    client.ask(query(8));
    client.abandon();
    let answers: Vec<_> = std::iter::from_fn(|| client.poll_answer()).collect();
    let unreachable = [7, 8].map(|number| (number, Err(QueryError::Unreachable)));
    assert_eq!(answers, unreachable);
}

#[test]
fn a_silent_service_loses_its_connection() {
    let (mut client, _) = asked(7);
    let end = Time(0) + TIMEOUT;
    assert_eq!(client.poll_timeout(), Some(end));
    client.handle_time(end);
    assert_eq!(client.poll_answer(), Some((7, Err(QueryError::Timeout))));
    assert_eq!(client.poll_action(end), Some(Action::Close(0)));
    assert_eq!((client.open(), client.poll_timeout()), (0, None));
}

#[test]
fn nonsense_closes_the_connection() {
    type Spoil = fn(&mut Vec<u8>);
    let spoils: [Spoil; 5] = [
        |bytes| bytes[0] = 9,
        |bytes| bytes[6..8].copy_from_slice(&15u16.to_ne_bytes()),
        |bytes| bytes[6..8].copy_from_slice(&60_000u16.to_ne_bytes()),
        |bytes| bytes[8] ^= 0xff,
        |bytes| bytes.push(0),
    ];
    for (turn, spoil) in spoils.into_iter().enumerate() {
        let (mut client, request) = asked(7);
        let mut bytes = answer(&request, Status::Success, |_| {});
        spoil(&mut bytes);
        client.handle_bytes(0, &bytes);
        let unreachable = Some((7, Err(QueryError::Unreachable)));
        assert_eq!(client.poll_answer(), unreachable, "{turn}");
        assert_eq!(client.poll_action(Time(0)), Some(Action::Close(0)));
    }
    let (mut client, request) = asked(7);
    let bytes = answer(&request, Status::Success, |_| {});
    client.handle_bytes(0, &bytes);
    client.handle_bytes(0, &bytes);
    assert_eq!(client.poll_action(Time(0)), Some(Action::Close(0)));
}
