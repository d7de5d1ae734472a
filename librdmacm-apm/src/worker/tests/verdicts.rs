// SPDX-License-Identifier: MIT OR Apache-2.0
//! What connections tell of those to come.

use cm_msgs::control::{Cause, FromDaemon, Refusal};

use super::peers::{far, yes};
use super::{connection, load, registered};
use crate::commit::Command;
use crate::tests::model::{Model, path};

#[test]
fn what_an_old_connection_goes_on_having_does_not_undo_what_a_newer_one_showed() {
    let (_daemon, client, commit, _) = registered(&Model::new(path(1)));
    client.order(FromDaemon::AsksPartitions);
    client.order(load(1, 1, 2));
    assert_eq!(client.report().cause, Cause::Done { token: 1 });
    let newer = connection(6, &Model::new(path(1)), false);
    commit.send(Command::Register(newer));
    client.registration();
    client.order(FromDaemon::Refuse {
        conn: 6,
        refusal: Refusal::OnePath,
    });
    // The older one is looked at, as it is every 30 s.
    let query = FromDaemon::Query { conn: 5, token: 9 };
    let queried = Cause::Query { token: 9 };
    client.order(query);
    assert_eq!(client.report().cause, queried);
    assert!(!yes(commit, far()));
    client.order(query);
    assert_eq!(client.report().cause, queried, "not asked");
}
