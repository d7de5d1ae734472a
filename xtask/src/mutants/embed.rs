// SPDX-License-Identifier: MIT OR Apache-2.0
//! A source file with all its mutants in it, each behind a switch (`switch.rs.txt`): built once, it is any of them.
//!
//! An operator is changed between its own operands: `a && b && c` becomes `(a || b) && c`, where cargo-mutants, which
//! changes the text, makes it `a || (b && c)`.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::listing::{Genre, Listed, Place};

/// A mutant's number.
pub(super) type Number = usize;

/// A file with mutants.
pub(super) struct Embedded {
    /// The file's new text.
    pub(super) text: String,
    /// Where the mutants' own pieces are in it.
    pub(super) pieces: Vec<(Range<usize>, Number)>,
    /// Those that are in it.
    pub(super) numbers: Vec<Number>,
}

/// Embeds mutants into the file `text`. What cannot be switched at run time is left out: constants.
///
/// # Errors
/// The file cannot be parsed.
pub(super) fn embed(text: &str, mutants: &[(Number, &Listed)]) -> Result<Embedded, syn::Error> {
    let file = syn::parse_file(text)?;
    let mut at: BTreeMap<(Genre, usize), Vec<(Number, &Listed)>> = BTreeMap::new();
    for &(number, mutant) in mutants {
        let start = offset(text, mutant.start);
        at.entry((mutant.genre, start))
            .or_default()
            .push((number, mutant));
    }
    let mut sites = Sites {
        text,
        at,
        found: Vec::new(),
    };
    sites.visit_file(&file);
    Ok(render(text, sites.found))
}

/// The byte at a place.
fn offset(text: &str, place: Place) -> usize {
    let lines = text.split_inclusive('\n').take(place.line - 1);
    let line_start: usize = lines.map(str::len).sum();
    let line = &text[line_start..];
    let column = line.char_indices().nth(place.column - 1);
    line_start + column.map_or(line.len(), |(at, _)| at)
}

/// Text, some of it a mutant's own.
type Pieces = Vec<(String, Option<Number>)>;

/// What is put around a piece of the file.
struct Site {
    around: Range<usize>,
    before: Pieces,
    after: String,
}

struct Sites<'a> {
    text: &'a str,
    at: BTreeMap<(Genre, usize), Vec<(Number, &'a Listed)>>,
    found: Vec<Site>,
}

fn bytes(node: &impl Spanned) -> Range<usize> {
    node.span().byte_range()
}

impl<'a> Sites<'a> {
    fn mutants(&mut self, genre: Genre, start: usize) -> Vec<(Number, &'a Listed)> {
        self.at.remove(&(genre, start)).unwrap_or_default()
    }

    fn source(&self, range: Range<usize>) -> &'a str {
        &self.text[range]
    }

    /// One of several expressions in place of one.
    fn choose(&mut self, around: Range<usize>, changed: Vec<(Number, String)>) {
        if changed.is_empty() {
            return;
        }
        let mut before = vec![("(".to_owned(), None)];
        for (number, text) in changed {
            before.push((format!("if {} {{", switch(number)), None));
            before.push((text, Some(number)));
            before.push(("} else ".to_owned(), None));
        }
        before.push(("{".to_owned(), None));
        let after = "})".to_owned();
        self.found.push(Site {
            around,
            before,
            after,
        });
    }

    /// A function's body that begins with what its mutants return.
    fn body(&mut self, block: &syn::Block) {
        let Some(first) = block.stmts.first() else {
            return;
        };
        let around = bytes(first).start..bytes(block).end - 1;
        let mut before = Pieces::new();
        for (number, mutant) in self.mutants(Genre::Function, around.start) {
            let returned = format!("return {};", mutant.replacement);
            before.push((format!("if {} {{", switch(number)), None));
            before.push((returned, Some(number)));
            before.push(("};\n".to_owned(), None));
        }
        let after = String::new();
        self.found.push(Site {
            around,
            before,
            after,
        });
    }
}

/// The condition that a mutant is on.
fn switch(number: Number) -> String {
    format!("crate::mutant_switch::on({number})")
}

fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

fn is_catch_all(pattern: &syn::Pat) -> bool {
    match pattern {
        syn::Pat::Wild(_) => true,
        // `None` looks like a name as well.
        syn::Pat::Ident(name) => {
            let name = name.ident.to_string();
            name.starts_with(|first: char| first.is_lowercase())
        }
        syn::Pat::Tuple(tuple) => tuple.elems.iter().all(is_catch_all),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Sites<'_> {
    // A switch is no constant.
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_expr_repeat(&mut self, repeat: &'ast syn::ExprRepeat) {
        self.visit_expr(&repeat.expr);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if function.sig.constness.is_none() {
            self.body(&function.block);
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if function.sig.constness.is_none() {
            self.body(&function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.body(block);
            visit::visit_trait_item_fn(self, function);
        }
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        let mutants = self.mutants(Genre::Binary, bytes(&binary.op).start);
        if !has_let(&binary.left) && !has_let(&binary.right) {
            let left = self.source(bytes(&*binary.left));
            let right = self.source(bytes(&*binary.right));
            let change = |(number, mutant): (Number, &Listed)| {
                (number, format!("({left}) {} ({right})", mutant.replacement))
            };
            let changed = mutants.into_iter().map(change).collect();
            self.choose(bytes(binary), changed);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        let mutants = self.mutants(Genre::Unary, bytes(&unary.op).start);
        let operand = self.source(bytes(&*unary.expr));
        let change = |(number, _)| (number, operand.to_owned());
        let changed = mutants.into_iter().map(change).collect();
        self.choose(bytes(unary), changed);
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, structure: &'ast syn::ExprStruct) {
        let whole = bytes(structure);
        let mut changed = Vec::new();
        for field in &structure.fields {
            for (number, mutant) in self.mutants(Genre::Field, bytes(field).start) {
                let start = offset(self.text, mutant.start);
                let end = offset(self.text, mutant.end);
                let rest = [whole.start..start, end..whole.end].map(|range| self.source(range));
                changed.push((number, rest.concat()));
            }
        }
        self.choose(whole, changed);
        visit::visit_expr_struct(self, structure);
    }

    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        // An arm behind a switch counts for nothing when the compiler looks whether all cases are there.
        if !expression.arms.iter().any(|arm| is_catch_all(&arm.pat)) {
            for arm in &expression.arms {
                self.mutants(Genre::Arm, bytes(arm).start);
            }
        }
        visit::visit_expr_match(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        let deleted: Vec<_> = self.mutants(Genre::Arm, bytes(arm).start);
        let deleted = deleted.first().map(|(number, _)| switch(*number));
        let guard = match &arm.pat {
            syn::Pat::Guard(pattern) if has_let(&pattern.guard) => {
                return visit::visit_arm(self, arm);
            }
            syn::Pat::Guard(pattern) => Some(bytes(&*pattern.guard)),
            _ => None,
        };
        let (around, before, after) = match (guard, deleted) {
            (None, None) => return visit::visit_arm(self, arm),
            (None, Some(deleted)) => {
                let end = bytes(&arm.pat).end;
                (end..end, format!(" if !{deleted}"), "")
            }
            (Some(around), deleted) => {
                let deleted = deleted.unwrap_or_else(|| "false".to_owned());
                let mut always = ["false".to_owned(), "false".to_owned()];
                for (number, mutant) in self.mutants(Genre::Guard, around.start) {
                    always[usize::from(mutant.replacement == "false")] = switch(number);
                }
                let [holds, fails] = always;
                (
                    around,
                    format!("!{deleted} && ({holds} || !{fails} && ("),
                    "))",
                )
            }
        };
        self.found.push(Site {
            around,
            before: vec![(before, None)],
            after: after.to_owned(),
        });
        visit::visit_arm(self, arm);
    }
}

/// The file with what is put into it.
fn render(text: &str, mut sites: Vec<Site>) -> Embedded {
    // What begins first, and of those that begin together the largest, is the outer one. Stable: a function before
    // the expression that is all of it.
    sites.sort_by_key(|site| (site.around.start, usize::MAX - site.around.end));
    let mut written = Embedded {
        text: String::new(),
        pieces: Vec::new(),
        numbers: Vec::new(),
    };
    let mut read = 0;
    let mut open: Vec<(usize, String)> = Vec::new();
    let close = |written: &mut Embedded, open: &mut Vec<(usize, String)>, read: &mut usize, to| {
        while let Some((end, after)) = open.pop_if(|(end, _)| *end <= to) {
            written.text.push_str(&text[*read..end]);
            written.text.push_str(&after);
            *read = end;
        }
    };
    for site in sites {
        close(&mut written, &mut open, &mut read, site.around.start);
        written.text.push_str(&text[read..site.around.start]);
        read = site.around.start;
        for (piece, number) in site.before {
            let start = written.text.len();
            written.text.push_str(&piece);
            if let Some(number) = number {
                written.pieces.push((start..written.text.len(), number));
            }
        }
        open.push((site.around.end, site.after));
    }
    close(&mut written, &mut open, &mut read, text.len());
    written.text.push_str(&text[read..]);
    let switches = written.text.split("mutant_switch::on(").skip(1);
    let numbers = switches.filter_map(|rest| rest.split(')').next()?.parse().ok());
    written.numbers = numbers.collect();
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(genre: Genre, text: &str, at: &str, replacement: &str) -> Listed {
        let start = text.find(at).expect("there");
        let place = |offset: usize| Place {
            line: 1,
            column: offset + 1,
        };
        Listed {
            name: String::new(),
            file: String::new(),
            genre,
            start: place(start),
            end: place(start + at.len()),
            replacement: replacement.to_owned(),
        }
    }

    fn embedded(text: &str, mutants: &[Listed]) -> String {
        let mutants: Vec<_> = mutants.iter().enumerate().collect();
        let embedded = embed(text, &mutants).expect("Rust");
        assert_eq!(embedded.numbers.len(), mutants.len(), "{}", embedded.text);
        syn::parse_file(&embedded.text).expect("Rust");
        embedded.text.replace("crate::mutant_switch::on", "on")
    }

    #[test]
    fn operators_change_between_their_own_operands() {
        let text = "fn f() -> bool { a && b == c }";
        let mutants = [
            mutant(Genre::Function, text, "a", "true"),
            mutant(Genre::Binary, text, "&&", "||"),
            mutant(Genre::Binary, text, "==", "!="),
        ];
        assert_eq!(
            embedded(text, &mutants),
            "fn f() -> bool { if on(0) {return true;};\n(if on(1) {(a) || (b == c)} else {a && \
             (if on(2) {(b) != (c)} else {b == c})}) }"
        );
    }

    #[test]
    fn arms_lose_themselves_and_their_guards() {
        let text =
            "fn f() { match x { A if g(!y) => {} B => 1, _ => 2 } match z { C => 1, D(_) => 2 } }";
        let mutants = [
            mutant(Genre::Arm, text, "A if", ""),
            mutant(Genre::Guard, text, "g(", "true"),
            mutant(Genre::Guard, text, "g(", "false"),
            mutant(Genre::Unary, text, "!", ""),
            mutant(Genre::Arm, text, "B =>", ""),
        ];
        assert_eq!(
            embedded(text, &mutants),
            "fn f() { match x { A if !on(0) && (on(1) || !on(2) && (g((if on(3) {y} else {!y})))) => {} \
             B if !on(4) => 1, _ => 2 } match z { C => 1, D(_) => 2 } }"
        );
    }

    #[test]
    fn a_field_is_the_bases() {
        let text = "fn f() { let x = S { a: 1, b: 2, ..c }; }";
        let mutants = [mutant(Genre::Field, text, "a: 1,", "")];
        assert_eq!(
            embedded(text, &mutants),
            "fn f() { let x = (if on(0) {S {  b: 2, ..c }} else {S { a: 1, b: 2, ..c }}); }"
        );
    }

    #[test]
    fn constants_are_left_alone() {
        let text = "const X: u8 = 1 + 2; const fn f() -> bool { a && b }";
        let mutants = [
            mutant(Genre::Binary, text, "+", "-"),
            mutant(Genre::Binary, text, "&&", "||"),
        ];
        let mutants: Vec<_> = mutants.iter().enumerate().collect();
        let embedded = embed(text, &mutants).expect("Rust");
        assert_eq!((embedded.text.as_str(), embedded.numbers), (text, vec![]));
    }
}
