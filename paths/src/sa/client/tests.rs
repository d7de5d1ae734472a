// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use std::collections::BTreeSet;

use cm_msgs::sa::{NodeRecord, Record, ResponseError, Rmpp, SaMad, SaStatus, TableError};
use cm_msgs::{DecodeError, Guid, mad};

impl SaClient {
    /// Requests waiting or under way.
    fn pending(&self) -> usize {
        self.waiting
            .values()
            .flat_map(|it| &it.of_kinds)
            .map(VecDeque::len)
            .sum::<usize>()
            + self.running.len()
    }
}

const PORT: PortId = PortId {
    node_guid: Guid(9),
    port: 1,
};
const OTHER: PortId = PortId { port: 2, ..PORT };

fn client() -> SaClient {
    SaClient::new(Limits { in_flight: 8 }, Random::new([1; 32]))
}

fn ask(number: u32) -> Ask {
    Ask {
        user: User::Paths(number),
        port: PORT,
        mad: SaMad::get(0, &NodeRecord::any()),
        timeout_ms: 200,
        tries: 5,
    }
}

fn ask_table(number: u32) -> Ask {
    Ask {
        mad: SaMad::get_table(0, &NodeRecord::any()),
        ..ask(number)
    }
}

/// The answer to a request, as umad delivers it.
fn answer(request: &SaRequest, status: u16) -> Vec<u8> {
    let mut mad = SaMad::decode(&request.mad).unwrap();
    mad.header.method = mad.header.response_method();
    mad.header.status = status;
    // umad has put its own number into the upper half.
    mad.header.transaction_id |= 0xabcd << 32;
    mad.encode().to_vec()
}

fn answer_table(request: &SaRequest, records: &[NodeRecord]) -> Vec<u8> {
    let mut mad = SaMad::decode(&answer(request, 0)).unwrap();
    mad.sa.attribute_offset = 14;
    mad.sa.rmpp = Rmpp {
        version: 1,
        packet_type: 1,
        flags: 3,
        ..Rmpp::default()
    };
    let mut message = mad.encode()[..56].to_vec();
    for record in records {
        message.extend(record.encode());
        message.extend([0; 4]);
    }
    message
}

fn sent(client: &mut SaClient) -> Vec<SaRequest> {
    std::iter::from_fn(|| client.poll_send()).collect()
}

fn failure(client: &mut SaClient) -> Option<(User, Failure)> {
    let (user, result) = client.poll_reply()?;
    Some((user, result.unwrap_err()))
}

#[test]
fn an_attribute_is_a_single_record() {
    let mut client = client();
    client.ask(ask(7));
    let request = client.poll_send().unwrap();
    assert_eq!(request.port, PORT);
    let mad = SaMad::decode(&request.mad).unwrap();
    assert_eq!(mad.header.transaction_id, request.transaction_id.into());
    assert_eq!(client.poll_send(), None);
    assert_eq!(
        client.handle_response(Time(0), &answer(&request, 0)),
        Ok(())
    );
    let (user, result) = client.poll_reply().unwrap();
    assert_eq!(user, User::Paths(7));
    let records: Vec<NodeRecord> = result.unwrap().decode().unwrap().collect();
    assert_eq!(records, [NodeRecord::default()]);
    assert_eq!((client.poll_reply(), client.pending()), (None, 0));
}

#[test]
fn a_table_has_as_many_records_as_fit() {
    let mut client = client();
    for count in [0, 1, 1000] {
        client.ask(ask_table(7));
        let request = client.poll_send().unwrap();
        let nodes: Vec<_> = (0..count)
            .map(|guid| NodeRecord {
                node_guid: Guid(guid),
                ..NodeRecord::default()
            })
            .collect();
        let message = answer_table(&request, &nodes);
        assert_eq!(client.handle_response(Time(0), &message), Ok(()));
        let response = client.poll_reply().unwrap().1.unwrap();
        assert_eq!(
            response.decode::<NodeRecord>().unwrap().collect::<Vec<_>>(),
            nodes
        );
    }
}

#[test]
fn silence_is_asked_again_with_doubling_waits_under_new_ids() {
    let mut client = client();
    client.ask(ask(7));
    let (mut ids, mut waits) = (BTreeSet::new(), Vec::new());
    while let Some(request) = client.poll_send() {
        ids.insert(request.transaction_id);
        waits.push(request.timeout_ms);
        client.handle_timeout(request.transaction_id);
    }
    assert_eq!(waits, [200, 400, 800, 1600, 3200]);
    assert_eq!(ids.len(), waits.len());
    assert_eq!(
        failure(&mut client),
        Some((User::Paths(7), Failure::Timeout))
    );
}

#[test]
fn waits_stop_growing_but_are_never_shorter_than_asked_for() {
    let mut client = client();
    for (timeout_ms, want) in [(4000, [4000, 8000, 10_000]), (60_000, [60_000; 3])] {
        client.ask(Ask {
            timeout_ms,
            tries: 3,
            ..ask(7)
        });
        let waits = std::iter::from_fn(|| {
            let request = client.poll_send()?;
            client.handle_timeout(request.transaction_id);
            Some(request.timeout_ms)
        });
        assert_eq!(waits.collect::<Vec<_>>(), want);
    }
}

#[test]
fn a_try_is_made_even_of_none() {
    let mut client = client();
    client.ask(Ask { tries: 0, ..ask(7) });
    let request = client.poll_send().unwrap();
    client.handle_timeout(request.transaction_id);
    assert_eq!(client.poll_send(), None);
    assert_eq!(
        failure(&mut client),
        Some((User::Paths(7), Failure::Timeout))
    );
}

#[test]
fn busy_is_asked_again_after_a_pause() {
    let mut client = client();
    client.ask(Ask { tries: 2, ..ask(7) });
    let request = client.poll_send().unwrap();
    assert_eq!(
        client.handle_response(Time(0), &answer(&request, 1)),
        Ok(())
    );
    assert_eq!(
        (client.poll_send(), client.poll_timeout()),
        (None, Some(Time(200_000)))
    );
    client.handle_time(Time(199_999));
    assert_eq!(client.poll_send(), None);
    client.handle_time(Time(200_000));
    let again = client.poll_send().unwrap();
    assert_eq!(again.timeout_ms, 400);
    client
        .handle_response(Time(300_000), &answer(&again, 0x0100))
        .unwrap();
    assert_eq!(failure(&mut client), Some((User::Paths(7), Failure::Busy)));
    assert_eq!(client.poll_timeout(), None);
}

#[test]
fn where_no_subnet_manager_runs_is_asked_again_and_the_next_one_at_once() {
    let mut client = client();
    client.ask(Ask { tries: 2, ..ask(7) });
    let request = client.poll_send().unwrap();
    client
        .handle_response(Time(0), &answer(&request, 0x000c))
        .unwrap();
    assert_eq!(client.poll_absent(), Some(User::Paths(7)));
    assert_eq!((client.poll_send(), client.poll_reply()), (None, None));
    assert_eq!(client.poll_timeout(), Some(Time(200_000)));
    assert_eq!(client.handle_sm_changed(PORT), [User::Paths(7)]);
    for pause in [true, false] {
        let request = client.poll_send().unwrap();
        client
            .handle_response(Time(0), &answer(&request, 0x000c))
            .unwrap();
        assert_eq!(client.poll_absent().is_some(), pause);
        client.handle_time(Time(200_000));
    }
    let absent = Some((User::Paths(7), Failure::Absent));
    assert_eq!(failure(&mut client), absent);
}

#[test]
fn a_refusal_is_final() {
    let mut client = client();
    client.ask(ask(7));
    let request = client.poll_send().unwrap();
    client
        .handle_response(Time(0), &answer(&request, 0x0300))
        .unwrap();
    let refused = Failure::Status(SaStatus::NoRecords);
    assert_eq!(failure(&mut client), Some((User::Paths(7), refused)));
}

#[test]
fn nonsense_is_told_to_the_asker_and_to_the_log() {
    let mut client = client();
    let mut check = |nonsense: fn(&mut Vec<u8>), want: Malformed| {
        client.ask(ask_table(7));
        let request = client.poll_send().unwrap();
        let mut message = answer_table(&request, &[NodeRecord::default()]);
        nonsense(&mut message);
        assert_eq!(client.handle_response(Time(0), &message), Err(want));
        let told = (User::Paths(7), Failure::Malformed(want));
        assert_eq!(failure(&mut client), Some(told));
    };
    let short = DecodeError::Short { len: 30, want: 56 };
    check(|message| message.truncate(30), short.into());
    let version = DecodeError::ClassVersion { found: 1, want: 2 };
    check(|message| message[2] = 1, version.into());
    let ragged = TableError::Ragged {
        len: 111,
        record_len: 112,
    };
    check(|message| message.truncate(56 + 111), ragged.into());
    let attribute = ResponseError::Attribute {
        found: 0x12,
        want: 0x11,
    };
    check(|message| message[17] = 0x12, Malformed::Answer(attribute));
    let method = ResponseError::Method {
        found: mad::METHOD_GET_RESP,
        want: mad::METHOD_GET_TABLE_RESP,
    };
    check(
        |message| message[3] = mad::METHOD_GET_RESP,
        Malformed::Answer(method),
    );
}

#[test]
fn what_answers_nothing_is_only_logged() {
    let mut client = client();
    client.ask(ask(7));
    let request = client.poll_send().unwrap();
    let short = DecodeError::Short { len: 3, want: 56 };
    assert_eq!(
        client.handle_response(Time(0), &[1, 3, 2]),
        Err(short.into())
    );
    let mut stranger = answer(&request, 0);
    stranger[15] = 1;
    assert_eq!(client.handle_response(Time(0), &stranger), Ok(()));
    assert_eq!((client.poll_reply(), client.pending()), (None, 1));
}

#[test]
fn no_more_than_allowed_are_under_way() {
    let mut client = client();
    (0..20).for_each(|number| client.ask(ask(number)));
    let first = sent(&mut client);
    assert_eq!((first.len(), client.pending()), (8, 20));
    client.handle_unsent(first[0].transaction_id);
    let unsent = Some((User::Paths(0), Failure::Unreachable));
    assert_eq!(failure(&mut client), unsent);
    assert_eq!(sent(&mut client).len(), 1);
}

#[test]
fn reading_the_fabric_leaves_room_and_path_queries_go_first() {
    let mut client = client();
    let table = |number| Ask {
        user: User::Fabric(number),
        ..ask_table(number)
    };
    (0..20).for_each(|number| client.ask(table(number)));
    let tables = sent(&mut client);
    assert_eq!(tables.len(), 2, "a quarter of 8");
    (0..7).for_each(|number| client.ask(ask(number)));
    assert_eq!(sent(&mut client).len(), 6);
    for table in &tables {
        client
            .handle_response(Time(0), &answer_table(table, &[]))
            .unwrap();
    }
    let methods = sent(&mut client).into_iter().map(|request| request.mad[3]);
    let methods: Vec<_> = methods.collect();
    assert_eq!(methods, [0x01, 0x12]);
}

#[test]
fn another_subnet_manager_is_asked_at_once() {
    let mut client = client();
    client.ask(ask(1));
    client.ask(ask(2));
    client.ask(Ask {
        port: OTHER,
        ..ask(3)
    });
    let mut old = sent(&mut client);
    // The first has been silent, the second busy, when the subnet manager dies.
    client.handle_timeout(old[0].transaction_id);
    old[0] = client.poll_send().unwrap();
    client
        .handle_response(Time(0), &answer(&old[1], 1))
        .unwrap();
    let users = client.handle_sm_changed(PORT);
    assert_eq!(users, [User::Paths(1), User::Paths(2)]);
    assert_eq!(client.poll_timeout(), None);
    let new = sent(&mut client);
    assert_eq!(
        new.iter()
            .map(|request| request.timeout_ms)
            .collect::<Vec<_>>(),
        [200, 200],
        "from the beginning; the other port's waits"
    );
    // The old copies end in the kernel, or in a late answer: nobody waits for them.
    client.handle_timeout(old[0].transaction_id);
    client
        .handle_response(Time(0), &answer(&old[0], 0x0300))
        .unwrap();
    assert_eq!((client.poll_send(), client.poll_reply()), (None, None));
    for request in &new {
        client
            .handle_response(Time(0), &answer(request, 0))
            .unwrap();
    }
    let users: Vec<_> = std::iter::from_fn(|| client.poll_reply())
        .map(|(user, result)| (user, result.is_ok()))
        .collect();
    assert_eq!(users, [(User::Paths(1), true), (User::Paths(2), true)]);
    assert_eq!(client.pending(), 1);
}

#[test]
fn a_lost_port_ends_its_requests() {
    let mut client = client();
    client.ask(ask(7));
    let request = client.poll_send().unwrap();
    client.handle_port_gone(OTHER);
    assert_eq!(client.poll_reply(), None);
    client.handle_port_gone(PORT);
    let gone = Some((User::Paths(7), Failure::Unreachable));
    assert_eq!(failure(&mut client), gone);
    client
        .handle_response(Time(0), &answer(&request, 0))
        .unwrap();
    client.handle_timeout(request.transaction_id);
    assert_eq!(client.poll_reply(), None);
}

/// A client with two ports on one subnet.
fn client_of_two() -> SaClient {
    let mut client = client();
    let subnet = Subnet {
        prefix: 0xfe80 << 48,
        sm_lid: cm_msgs::Lid(1),
        sm_guid: Guid(1),
    };
    for port in [PORT, OTHER] {
        client.handle_port(port, Some(subnet));
    }
    client
}

/// Loses every copy that leaves by `dead`; the exits of all.
fn lose_by(
    client: &mut SaClient,
    dead: impl Fn(PortId) -> bool,
    suspect: Option<PortId>,
) -> Vec<u8> {
    let mut exits = Vec::new();
    while let Some(request) = client.poll_send_around(|port| Some(port) == suspect) {
        exits.push(request.port.port);
        match dead(request.port) {
            true => client.handle_timeout(request.transaction_id),
            false => client
                .handle_response(Time(0), &answer(&request, 0))
                .unwrap(),
        }
    }
    exits
}

#[test]
fn a_path_query_about_a_port_that_is_dead_leaves_by_another() {
    let mut client = client_of_two();
    client.ask(ask(1));
    let exits = lose_by(&mut client, |port| port == PORT, None);
    assert_eq!(exits, [1, 2], "the first retry goes by the other port");
    client.ask(ask(2));
    assert_eq!(lose_by(&mut client, |port| port == PORT, None), [2]);
    assert!(client.poll_reply().unwrap().1.is_ok());
    assert!(client.poll_reply().unwrap().1.is_ok());
}

#[test]
fn where_probes_tell_first_not_even_one_copy_is_lost() {
    let mut client = client_of_two();
    client.ask(ask(1));
    assert_eq!(lose_by(&mut client, |port| port == PORT, Some(PORT)), [2]);
    assert!(client.poll_reply().unwrap().1.is_ok());
}

#[test]
fn a_port_that_answers_again_asks_for_itself() {
    let mut client = client_of_two();
    client.ask(ask(1));
    lose_by(&mut client, |port| port == PORT, None);
    client.ask(Ask {
        user: User::Join(1),
        ..ask(0)
    });
    assert_eq!(lose_by(&mut client, |_| false, None), [1]);
    client.ask(ask(2));
    assert_eq!(lose_by(&mut client, |_| false, None), [1]);
}

#[test]
fn a_silent_sa_is_asked_by_all_ports_in_turn_and_no_more_often() {
    let mut client = client_of_two();
    client.ask(ask(7));
    assert_eq!(lose_by(&mut client, |_| true, None), [1, 2, 1, 2, 1]);
    assert_eq!(
        failure(&mut client),
        Some((User::Paths(7), Failure::Timeout))
    );
}

#[test]
fn only_path_queries_leave_by_another_port() {
    let mut client = client_of_two();
    for user in [User::Fabric(1), User::Join(2), User::Inform(3)] {
        client.ask(Ask { user, ..ask(0) });
        assert_eq!(lose_by(&mut client, |_| true, Some(PORT)), [1; 5]);
        assert_eq!(failure(&mut client), Some((user, Failure::Timeout)));
    }
}

#[test]
fn that_there_is_no_path_is_believed_of_the_port_itself_only() {
    let mut client = client_of_two();
    for nothing in [
        |request: &SaRequest| answer(request, 0x0300),
        |request: &SaRequest| answer_table(request, &[]),
    ] {
        client.ask(ask_table(7));
        let astray = client.poll_send_around(|port| port == PORT).unwrap();
        assert_eq!(astray.port, OTHER);
        let message = nothing(&astray);
        client.handle_response(Time(0), &message).unwrap();
        assert_eq!(client.poll_reply(), None);
        assert_eq!(
            lose_by(&mut client, |_| true, Some(PORT)),
            [1; 3],
            "and not for long"
        );
        assert_eq!(
            failure(&mut client),
            Some((User::Paths(7), Failure::Timeout))
        );
    }
    client.ask(ask(8));
    let astray = client.poll_send_around(|port| port == PORT).unwrap();
    let no = answer(&astray, 0x0300);
    client.handle_response(Time(0), &no).unwrap();
    let own = client.poll_send().unwrap();
    assert_eq!((own.port, own.timeout_ms), (PORT, 200));
    let no = answer(&own, 0x0300);
    client.handle_response(Time(0), &no).unwrap();
    let refused = Failure::Status(SaStatus::NoRecords);
    assert_eq!(failure(&mut client), Some((User::Paths(8), refused)));
}

#[test]
fn a_port_that_stood_in_and_cannot_send_is_a_lost_copy() {
    let mut client = client_of_two();
    let astray = |client: &mut SaClient| {
        let request = client.poll_send_around(|port| port == PORT).unwrap();
        assert_eq!(request.port, OTHER);
        request
    };
    client.ask(ask(1));
    let request = astray(&mut client);
    client.handle_unsent(request.transaction_id);
    assert_eq!(client.poll_send().unwrap().port, PORT);

    let mut client = client_of_two();
    client.ask(ask(1));
    let request = astray(&mut client);
    client.handle_port_gone(OTHER);
    assert_eq!(client.poll_reply(), None);
    assert_eq!(client.poll_send().unwrap().port, PORT);
    client.handle_timeout(request.transaction_id);
    assert_eq!((client.poll_send(), client.poll_reply()), (None, None));
}

/// MLNX_OFED lets this many requests of a port through and drops the others. All of a hundred are answered, at a pace that
/// it lets through, and few are sent in vain.
#[test]
fn requests_adapt_to_what_gets_through() {
    const THROUGH: usize = 16;
    let mut client = SaClient::new(Limits { in_flight: 512 }, Random::new([1; 32]));
    for number in 0..1000 {
        client.ask(ask(number));
    }
    let (mut copies, mut most) = (0, 0);
    while client.pending() > 0 {
        let requests = sent(&mut client);
        copies += requests.len();
        most = most.max(requests.len());
        for (at, request) in requests.iter().enumerate() {
            match at < THROUGH {
                true => client
                    .handle_response(Time(0), &answer(request, 0))
                    .unwrap(),
                false => client.handle_timeout(request.transaction_id),
            }
        }
    }
    let replies: Vec<_> = std::iter::from_fn(|| client.poll_reply()).collect();
    assert_eq!(
        replies.iter().filter(|(_, result)| result.is_ok()).count(),
        1000
    );
    assert!(most <= 2 * THROUGH, "{most} at a time");
    assert!(copies < 1100, "{copies} copies of 1000 requests");
    let window = client.windows().next().unwrap();
    assert!(
        window.size <= THROUGH + 1 && window.reductions > 0,
        "{window:?}"
    );
    assert_eq!(window.under_way, 0);
}

/// Tables that come too late make the window of their port small. What is left of it must not be theirs alone: a table is
/// waited for 4 s, then 8 s and 10 s, and the fabric's reader asks for four at a time (`source/ssa.rs`).
#[test]
fn a_path_query_does_not_wait_for_tables_where_few_requests_get_through() {
    let mut client = SaClient::new(Limits::default(), Random::new([1; 32]));
    let table = |number| Ask {
        user: User::Fabric(number),
        timeout_ms: 4_000,
        tries: 4,
        ..ask_table(number)
    };
    for number in 0..4 {
        client.ask(table(number));
    }
    for _ in 0..2 {
        for request in sent(&mut client) {
            client.handle_timeout(request.transaction_id);
        }
    }
    sent(&mut client);
    client.ask(ask(100));
    let queries = sent(&mut client);
    assert_eq!(queries.len(), 1, "{:?}", client.windows().next());
}

#[test]
fn what_is_withdrawn_is_not_sent_and_has_no_reply() {
    let limits = Limits { in_flight: 2 };
    let mut client = SaClient::new(limits, Random::new([1; 32]));
    for number in 1..=3 {
        client.ask(ask(number));
    }
    let first = sent(&mut client);
    assert_eq!(first.len(), 2);
    // One that has been sent, and one that waits.
    client.withdraw(User::Paths(1));
    client.withdraw(User::Paths(3));
    // The copy that was sent keeps its place until it is lost.
    client.ask(ask(4));
    assert!(sent(&mut client).is_empty());
    client.handle_timeout(first[0].transaction_id);
    assert_eq!(sent(&mut client).len(), 1, "the fourth");
    assert!(client.poll_reply().is_none());
}
