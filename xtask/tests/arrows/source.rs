// SPDX-License-Identifier: MIT OR Apache-2.0
//! A crate's modules as they stand in its files, with the paths that each of them writes down.
//! Tests are left out: they may use what they like.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A path as it is written, `crate::io::Umad` say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
}

impl Written {
    fn name(name: &syn::Ident) -> Self {
        Self {
            segments: vec![name.to_string()],
            line: name.span().start().line,
        }
    }
}

/// A module and what stands in it.
pub(crate) struct Module {
    /// From the crate's root, which has none.
    pub(crate) path: Vec<String>,
    pub(crate) file: PathBuf,
    pub(crate) parent: Option<usize>,
    pub(crate) children: BTreeMap<String, usize>,
    /// The names that `use` brings in, with what they stand for.
    pub(crate) imports: BTreeMap<String, Vec<String>>,
    /// What `use ...::*` stands for.
    pub(crate) globs: Vec<Vec<String>>,
    pub(crate) defines: BTreeSet<String>,
    /// All paths in it, in `use` and elsewhere; a glob's ends with `*`.
    pub(crate) written: Vec<Written>,
    /// The macros and methods that it calls by a bare name.
    pub(crate) called: Vec<Written>,
    pub(crate) items: Vec<syn::Item>,
}

/// One library or program: the modules below one root file.
pub(crate) struct Crate {
    pub(crate) name: String,
    /// The root is the first.
    pub(crate) modules: Vec<Module>,
    /// What stands at the root's head, `#![...]`.
    pub(crate) attributes: Vec<syn::Attribute>,
}

/// The libraries and programs of the package in `directory`.
pub(crate) fn package(directory: &Path) -> Vec<Crate> {
    let source = directory.join("src");
    let mut roots = vec![source.join("lib.rs"), source.join("main.rs")];
    if let Ok(entries) = fs::read_dir(source.join("bin")) {
        roots.extend(entries.map(|entry| entry.expect("a readable directory").path()));
    }
    roots.retain(|root| root.is_file());
    roots.sort();
    assert!(!roots.is_empty(), "{} has no source", directory.display());
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    roots.iter().map(|root| Crate::read(&name, root)).collect()
}

impl Crate {
    fn read(name: &str, root: &Path) -> Self {
        let parsed = parse(root);
        let mut read = Self {
            name: name.to_owned(),
            modules: Vec::new(),
            attributes: parsed.attrs,
        };
        let below = root.parent().expect("a file is in a directory");
        read.add(None, Vec::new(), root, below, parsed.items);
        read
    }

    /// Adds a module and all below it; the files of those are in `below`.
    fn add(
        &mut self,
        parent: Option<usize>,
        path: Vec<String>,
        file: &Path,
        below: &Path,
        items: Vec<syn::Item>,
    ) -> usize {
        let this = self.modules.len();
        let mut reader = Reader::default();
        items.iter().for_each(|item| reader.visit_item(item));
        self.modules.push(Module {
            path: path.clone(),
            file: file.to_owned(),
            parent,
            children: BTreeMap::new(),
            imports: reader.imports,
            globs: reader.globs,
            defines: items.iter().filter_map(name_of).collect(),
            written: reader.written,
            called: reader.called,
            items: Vec::new(),
        });
        for item in &items {
            let syn::Item::Mod(module) = item else {
                continue;
            };
            if is_for_tests(&module.attrs) {
                continue;
            }
            let name = module.ident.to_string();
            let path = [path.clone(), vec![name.clone()]].concat();
            let inner = below.join(&name);
            let child = match &module.content {
                Some((_, items)) => self.add(Some(this), path, file, &inner, items.clone()),
                None => {
                    let file = [below.join(format!("{name}.rs")), inner.join("mod.rs")]
                        .into_iter()
                        .find(|file| file.is_file())
                        .unwrap_or_else(|| panic!("{}: no file for {name}", file.display()));
                    let items = parse(&file).items;
                    self.add(Some(this), path, &file, &inner, items)
                }
            };
            self.modules[this].children.insert(name, child);
        }
        self.modules[this].items = items;
        this
    }

    /// A module as one would write it.
    pub(crate) fn title(&self, module: usize) -> String {
        [vec![self.name.clone()], self.modules[module].path.clone()]
            .concat()
            .join("::")
    }
}

fn parse(file: &Path) -> syn::File {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Whether an item with these attributes is compiled for tests only.
pub(crate) fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let is_cfg_test = || {
            let condition = attribute.parse_args::<syn::Path>();
            condition.is_ok_and(|condition| condition.is_ident("test"))
        };
        attribute.path().is_ident("test") || attribute.path().is_ident("cfg") && is_cfg_test()
    })
}

/// The attributes of an item that can stand for itself.
fn attributes_of(item: &syn::Item) -> &[syn::Attribute] {
    match item {
        syn::Item::Const(item) => &item.attrs,
        syn::Item::Enum(item) => &item.attrs,
        syn::Item::ExternCrate(item) => &item.attrs,
        syn::Item::Fn(item) => &item.attrs,
        syn::Item::Impl(item) => &item.attrs,
        syn::Item::Macro(item) => &item.attrs,
        syn::Item::Mod(item) => &item.attrs,
        syn::Item::Static(item) => &item.attrs,
        syn::Item::Struct(item) => &item.attrs,
        syn::Item::Trait(item) => &item.attrs,
        syn::Item::Type(item) => &item.attrs,
        syn::Item::Union(item) => &item.attrs,
        syn::Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn name_of(item: &syn::Item) -> Option<String> {
    let name = match item {
        syn::Item::Const(item) => &item.ident,
        syn::Item::Enum(item) => &item.ident,
        syn::Item::Fn(item) => &item.sig.ident,
        syn::Item::Macro(item) => item.ident.as_ref()?,
        syn::Item::Static(item) => &item.ident,
        syn::Item::Struct(item) => &item.ident,
        syn::Item::Trait(item) => &item.ident,
        syn::Item::Type(item) => &item.ident,
        syn::Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}

/// Collects what a module writes down, without its child modules.
#[derive(Default)]
struct Reader {
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    written: Vec<Written>,
    called: Vec<Written>,
}

impl Reader {
    fn import(&mut self, tree: &syn::UseTree, mut prefix: Vec<String>) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix);
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(tree, prefix.clone());
                }
            }
            syn::UseTree::Name(name) => self.import_as(prefix, &name.ident, &name.ident),
            syn::UseTree::Rename(rename) => self.import_as(prefix, &rename.ident, &rename.rename),
            syn::UseTree::Glob(glob) => {
                self.globs.push(prefix.clone());
                prefix.push("*".to_owned());
                let line = glob.star_token.spans[0].start().line;
                self.written.push(Written {
                    segments: prefix,
                    line,
                });
            }
        }
    }

    /// `prefix::name as alias`; `prefix::{self}` is the prefix.
    fn import_as(&mut self, mut prefix: Vec<String>, name: &syn::Ident, alias: &syn::Ident) {
        let mut alias = alias.to_string();
        if name == "self" {
            alias = if alias == "self" {
                prefix.last().cloned().unwrap_or(alias)
            } else {
                alias
            };
        } else {
            prefix.push(name.to_string());
        }
        let line = name.span().start().line;
        self.written.push(Written {
            segments: prefix.clone(),
            line,
        });
        self.imports.insert(alias, prefix);
    }

    /// Macros may be called with anything, so what looks like a path in them counts as one.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path = Written::default();
        let (mut colons, mut is_variable) = (0, false);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                TokenTree::Punct(punct) if punct.as_char() == '$' => is_variable = true,
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.end(&mut path);
                        path.line = name.span().start().line;
                    }
                    // What a macro's variable stands for is written where the macro is called.
                    let is_known = !is_variable || name == "crate";
                    path.segments.push(if is_known {
                        name.to_string()
                    } else {
                        "Self".to_owned()
                    });
                    (colons, is_variable) = (0, false);
                }
                TokenTree::Group(group) => {
                    self.end(&mut path);
                    self.tokens(group.stream());
                }
                _ => {
                    self.end(&mut path);
                    (colons, is_variable) = (0, false);
                }
            }
        }
        self.end(&mut path);
    }

    fn end(&mut self, path: &mut Written) {
        let path = std::mem::take(path);
        if path.segments.len() > 1 {
            self.written.push(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        // A child module is read as a module of its own.
        if !is_for_tests(attributes_of(item)) && !matches!(item, syn::Item::Mod(_)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        let alias = item.rename.as_ref().map_or(&item.ident, |(_, name)| name);
        self.import_as(Vec::new(), &item.ident, alias);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, Vec::new());
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter();
        self.written.push(Written {
            segments: segments.map(|segment| segment.ident.to_string()).collect(),
            line: path.segments[0].ident.span().start().line,
        });
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        if let Some(name) = called.path.get_ident() {
            self.called.push(Written::name(name));
        }
        self.visit_path(&called.path);
        self.tokens(called.tokens.clone());
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.called.push(Written::name(&call.method));
        visit::visit_expr_method_call(self, call);
    }

    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
}
