// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether this library can see what it has to see.
//!
//! rsockets live inside librdmacm. Their calls reach us only if librdmacm calls its own public
//! functions through its procedure linkage table, as most builds do. A build with
//! `-Bsymbolic-functions` or link-time optimisation may not, and then its rsockets are not kept
//! armed; the application's own calls are caught all the same.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int, c_void};
use std::slice;
use std::sync::Once;

use libc::{Elf64_Rela, Elf64_Sym, dl_phdr_info};

use crate::real::real;

/// What rsockets wait for a connection with.
const PROBE: &CStr = c"rdma_get_cm_event";

/// Says, once per process, what this library cannot see.
pub(crate) fn check_once() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if !librdmacm_calls_through_plt() {
            crate::log::warn(
                &"this librdmacm calls its own functions directly: rsockets are not kept armed",
            );
        }
    });
}

fn librdmacm_calls_through_plt() -> bool {
    let mut search = Search {
        address: real().rdma_get_cm_event as usize,
        found: false,
    };
    // SAFETY: `visit` gets what it expects, and is done with it when this returns.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    search.found
}

struct Search {
    /// Lies in librdmacm.
    address: usize,
    /// It has a relocation against [`PROBE`].
    found: bool,
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid object and our own `Search`.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search>()) };
    // SAFETY: the object has that many program headers.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let at = |vaddr: u64| info.dlpi_addr.wrapping_add(vaddr) as usize;
    let holds_address = headers.iter().any(|header| {
        let start = at(header.p_vaddr);
        header.p_type == libc::PT_LOAD
            && (start..start + header.p_memsz as usize).contains(&search.address)
    });
    if !holds_address {
        return 0;
    }
    if let Some(dynamic) = headers
        .iter()
        .find(|header| header.p_type == libc::PT_DYNAMIC)
    {
        // SAFETY: it is the dynamic section of a loaded object.
        search.found = unsafe { has_relocation(at(dynamic.p_vaddr) as *const Elf64Dyn) };
    }
    1
}

/// An entry of the dynamic section.
#[repr(C)]
struct Elf64Dyn {
    tag: i64,
    value: u64,
}

const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// # Safety
/// `dynamic` is the dynamic section, ended by DT_NULL, of an object that stays loaded.
unsafe fn has_relocation(dynamic: *const Elf64Dyn) -> bool {
    let value = |tag: i64| {
        // SAFETY: the section ends with DT_NULL, whose tag is 0.
        let entries = (0..)
            .map(|i| unsafe { &*dynamic.add(i) })
            .take_while(|entry| entry.tag != 0);
        entries
            .into_iter()
            .find(|entry| entry.tag == tag)
            .map(|entry| entry.value as usize)
    };
    let (Some(strings), Some(symbols)) = (value(DT_STRTAB), value(DT_SYMTAB)) else {
        return false;
    };
    let tables = [
        (value(DT_JMPREL), value(DT_PLTRELSZ)),
        (value(DT_RELA), value(DT_RELASZ)),
    ];
    tables.into_iter().any(|table| {
        let (Some(start), Some(size)) = table else {
            return false;
        };
        // SAFETY: the dynamic section says where the table lies and how long it is; glibc has
        // made its addresses absolute.
        let relocations = unsafe {
            slice::from_raw_parts(start as *const Elf64_Rela, size / size_of::<Elf64_Rela>())
        };
        relocations.iter().any(|relocation| {
            let symbol = (relocation.r_info >> 32) as usize;
            if symbol == 0 {
                return false;
            }
            // SAFETY: a relocation's symbol is in the symbol table, and its name in the string
            // table, NUL-terminated.
            let name = unsafe {
                let symbol = &*(symbols as *const Elf64_Sym).add(symbol);
                CStr::from_ptr((strings as *const libc::c_char).add(symbol.st_name as usize))
            };
            name == PROBE
        })
    })
}
