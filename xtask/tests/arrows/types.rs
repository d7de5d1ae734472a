// SPDX-License-Identifier: MIT OR Apache-2.0
//! How large a crate's types are: their fields, and the files in which they have methods.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use syn::{ImplItem, Item};

use crate::resolve::{Target, resolve};
use crate::source::{Crate, is_for_tests};

/// One type's size.
#[derive(Debug, Default)]
pub(crate) struct Size {
    /// Those of a struct, or of the variant of an enum that has the most.
    pub(crate) fields: usize,
    /// Where it has methods of its own, not those of traits.
    pub(crate) files: BTreeSet<PathBuf>,
}

/// Each type's size, by its name.
pub(crate) fn sizes(krate: &Crate) -> BTreeMap<String, Size> {
    let mut sizes: BTreeMap<String, Size> = BTreeMap::new();
    for (index, module) in krate.modules.iter().enumerate() {
        for item in &module.items {
            let named = |name: &syn::Ident| format!("{}::{name}", krate.title(index));
            match item {
                Item::Struct(item) => {
                    sizes.entry(named(&item.ident)).or_default().fields = item.fields.len();
                }
                Item::Enum(item) => {
                    let fields = item.variants.iter().map(|variant| variant.fields.len());
                    let fields = fields.max().unwrap_or(0);
                    sizes.entry(named(&item.ident)).or_default().fields = fields;
                }
                Item::Impl(item) if has_methods(item) => {
                    if let Some(name) = name_of(krate, index, &item.self_ty) {
                        let files = &mut sizes.entry(name).or_default().files;
                        files.insert(module.file.clone());
                    }
                }
                _ => {}
            }
        }
    }
    sizes
}

fn has_methods(block: &syn::ItemImpl) -> bool {
    let is_method = |item: &ImplItem| matches!(item, ImplItem::Fn(_));
    block.trait_.is_none() && !is_for_tests(&block.attrs) && block.items.iter().any(is_method)
}

/// The name of the type that a block in this module is for.
fn name_of(krate: &Crate, module: usize, this: &syn::Type) -> Option<String> {
    let syn::Type::Path(path) = this else {
        return None;
    };
    let segments = path.path.segments.iter();
    let segments: Vec<_> = segments.map(|segment| segment.ident.to_string()).collect();
    match resolve(krate, module, &segments).target {
        Target::Inside(owner) => Some(format!("{}::{}", krate.title(owner), segments.last()?)),
        _ => None,
    }
}
