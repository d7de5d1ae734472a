// SPDX-License-Identifier: MIT OR Apache-2.0
//! The right answers, learnt from the servers: they agree, and say what they were given.

use cm_msgs::acm::{Entry, Info, Resolve, Status};
use cm_msgs::sa::PathRecord;

use super::client::Client;
use super::preload::{End, MTU, Preload, RATE};
use super::question::{Kind, Question};
use crate::failure::{Failure, ensure};

/// The questions about all destinations, for either server with its own answers. These say the same,
/// and ibacm's say what it was given.
pub(super) fn learn(
    kind: Kind,
    preload: &Preload,
    clients: [Client; 2],
) -> Result<[Vec<Question>; 2], Failure> {
    let [mut ibacm, mut apmd] = clients;
    let mut questions = [Vec::new(), Vec::new()];
    for there in &preload.destinations {
        let question = Question::new(kind, &preload.here, there);
        let (theirs, ours) = (ibacm.ask(&question)?, apmd.ask(&question)?);
        check(&theirs, &preload.here, there)?;
        ensure(contents(&ours)? == contents(&theirs)?, || {
            let (ours, theirs) = (words(&ours), words(&theirs));
            format!(
                "{} {}: apmd answers {ours}, ibacm {theirs}",
                kind.name(),
                there.gid
            )
        })?;
        for (questions, answer) in questions.iter_mut().zip([theirs, ours]) {
            questions.push(Question {
                request: question.request.clone(),
                answer,
            });
        }
    }
    Ok(questions)
}

/// What an answer says. Selectors do not count: in an answer there is nothing to select from, and
/// ibacm has zeros there where the SA's records have "exactly".
fn contents(answer: &[u8]) -> Result<(Status, Vec<Entry>), Failure> {
    let message = Resolve::decode(answer).map_err(|error| Failure::Output {
        source_name: "answer".to_owned(),
        problem: error.to_string(),
    })?;
    let without_selectors = |entry: &Entry| match entry.info {
        Info::Path(path) => Entry::path(
            entry.flags,
            PathRecord {
                numb_path: 0,
                mtu_selector: 0,
                rate_selector: 0,
                packet_life_time_selector: 0,
                ..path
            },
        ),
        Info::Address(_) | Info::Other(_) => *entry,
    };
    let entries = message.entries().iter().map(without_selectors);
    Ok((message.status, entries.collect()))
}

fn words(answer: &[u8]) -> String {
    Resolve::decode(answer).map_or_else(
        |error| error.to_string(),
        |message| format!("{:?} {:?}", message.status, message.entries()),
    )
}

/// An answer says what the files say.
fn check(answer: &[u8], here: &End, there: &End) -> Result<(), Failure> {
    let message = Resolve::decode(answer).map_err(|error| Failure::Output {
        source_name: "ibacm".to_owned(),
        problem: error.to_string(),
    })?;
    let right = match message.entries().first().map(|entry| entry.info) {
        Some(Info::Path(path)) => {
            (path.sgid, path.slid, path.dgid, path.dlid)
                == (here.gid, here.lid, there.gid, there.lid)
                && (path.mtu, path.rate, path.sl) == (MTU, RATE, 0)
        }
        _ => false,
    };
    ensure(right, || {
        let (answer, lid) = (words(answer), there.lid);
        format!("ibacm answers {answer} about {} with lid {lid}", there.gid)
    })
}
