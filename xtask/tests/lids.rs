// SPDX-License-Identifier: MIT OR Apache-2.0
//! A LID names a port within one subnet only. So LIDs are compared in few places, each of which knows the subnet: two
//! rails may have equal LIDs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ExprBinary, Member};

/// Where LIDs are compared, and why that is right.
const PLACES: [(&str, &str); 14] = [
    (
        "statemachine/src/port.rs",
        "one local port, before and after",
    ),
    (
        "statemachine/src/conn/peer.rs",
        "fit: LIDs, and then the peer's port",
    ),
    (
        "statemachine/src/conn/qp.rs",
        "one local port, before and after",
    ),
    (
        "statemachine/src/conn/doubt.rs",
        "paths of one local port to one GID",
    ),
    ("apmd/src/port_watch.rs", "one local port, before and after"),
    (
        "apmd/src/parts/ports/mads.rs",
        "a port and its subnet manager",
    ),
    ("librdmacm-apm/src/queue_pair.rs", "with the local port"),
    (
        "librdmacm-apm/src/device.rs",
        "a path and the port that it leaves from",
    ),
    ("acm/src/local.rs", "a path from a port to itself"),
    (
        "paths/src/source/path_file.rs",
        "a record for the port that is asked about",
    ),
    (
        "paths/src/source/acm.rs",
        "a record for the port that is asked about",
    ),
    ("paths/src/fabric/tables.rs", "the tables of one fabric"),
    (
        "paths/src/sa/node_names.rs",
        "the SA of the local port's subnet is asked for this LID: its record has it",
    ),
    (
        "paths/src/sa/managers.rs",
        "the answer to a question about one port",
    ),
];

/// Crates whose LIDs may be of different subnets. In pathdb all are of one fabric.
const CRATES: [&str; 5] = ["statemachine", "apmd", "librdmacm-apm", "acm", "paths"];

fn workspace() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().expect("in the workspace").to_owned()
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a readable directory") {
        let path = entry.expect("a readable directory").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let is_test = ["tests", "tests.rs", "model"].contains(&name.as_str());
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if name.ends_with(".rs") && !is_test {
            found.push(path);
        }
    }
}

/// Whether an expression is a field that holds a LID.
fn is_lid(expr: &Expr) -> bool {
    match expr {
        Expr::Field(field) => match &field.member {
            Member::Named(name) => {
                let name = name.to_string();
                ["lid", "slid", "dlid", "sm_lid", "master_sm_lid"].contains(&name.as_str())
            }
            Member::Unnamed(_) => is_lid(&field.base),
        },
        Expr::Paren(inner) => is_lid(&inner.expr),
        Expr::Reference(inner) => is_lid(&inner.expr),
        Expr::Unary(inner) => is_lid(&inner.expr),
        _ => false,
    }
}

/// Whether it is a LID that is written out: 0, say, which none has.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => call.args.iter().all(|arg| matches!(arg, Expr::Lit(_))),
        Expr::Path(path) => path.path.segments.iter().any(|part| part.ident == "Lid"),
        Expr::Lit(_) => true,
        _ => false,
    }
}

#[derive(Default)]
struct Comparisons(usize);

impl<'ast> Visit<'ast> for Comparisons {
    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        let compares = matches!(binary.op, BinOp::Eq(_) | BinOp::Ne(_));
        let sides = [&*binary.left, &*binary.right];
        let of_lids = sides.iter().any(|side| is_lid(side));
        if compares && of_lids && !sides.iter().any(|side| is_constant(side)) {
            self.0 += 1;
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.ident != "tests" {
            visit::visit_item_mod(self, module);
        }
    }
}

#[test]
fn lids_are_compared_where_their_subnet_is_known() {
    let root = workspace();
    let mut files = Vec::new();
    for name in CRATES {
        sources(&root.join(name).join("src"), &mut files);
    }
    let known: BTreeSet<&str> = PLACES.iter().map(|(file, _)| *file).collect();
    let mut found = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a readable file");
        let parsed = syn::parse_file(&text).expect("a file that compiles");
        let mut comparisons = Comparisons::default();
        comparisons.visit_file(&parsed);
        if comparisons.0 > 0 {
            let file = file.strip_prefix(&root).expect("in the workspace");
            found.insert(file.to_string_lossy().into_owned());
        }
    }
    let others: Vec<_> = found
        .iter()
        .filter(|file| !known.contains(file.as_str()))
        .collect();
    assert!(
        others.is_empty(),
        "bare comparisons of LIDs in {others:?}: compare statemachine's SubnetLid, or say here what tells the subnet"
    );
    let gone: Vec<_> = known
        .iter()
        .filter(|file| !found.contains(**file))
        .collect();
    assert!(gone.is_empty(), "no LIDs are compared any more in {gone:?}");
}

#[test]
fn a_bare_comparison_is_noticed() {
    let count = |text: &str| {
        let mut comparisons = Comparisons::default();
        comparisons.visit_file(&syn::parse_str(text).expect("an item"));
        comparisons.0
    };
    assert_eq!(count("fn f() -> bool { a.lid == b.path.dlid }"), 1);
    assert_eq!(
        count("fn f() -> bool { Some(lid) != x && a.slid.0 != lid.0 }"),
        1
    );
    assert_eq!(
        count("fn f() -> bool { a.lid == Lid(0) || a.lid.0 == 0 || a.lid != Lid::PERMISSIVE }"),
        0
    );
    assert_eq!(count("mod tests { fn f() -> bool { a.lid == b.lid } }"), 0);
}
