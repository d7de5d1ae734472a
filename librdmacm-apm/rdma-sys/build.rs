// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes the declarations from the system's headers.

use std::env;
use std::error::Error;
use std::path::Path;

/// What is included.
const HEADERS: &str = "src/headers.h";

const LIBRARIES: &[(&str, &str)] = &[("libibverbs", "1.8.28"), ("librdmacm", "1.2.28")];

const FUNCTIONS: &[&str] = &[
    "___ibv_query_port",
    "ibv_ack_async_event",
    "ibv_ack_cq_events",
    "ibv_alloc_pd",
    "ibv_attach_mcast",
    "ibv_close_device",
    "ibv_create_ah",
    "ibv_create_comp_channel",
    "ibv_create_cq",
    "ibv_create_qp",
    "ibv_dealloc_pd",
    "ibv_dereg_mr",
    "ibv_destroy_ah",
    "ibv_destroy_comp_channel",
    "ibv_destroy_cq",
    "ibv_destroy_qp",
    "ibv_detach_mcast",
    "ibv_free_device_list",
    "ibv_get_async_event",
    "ibv_get_cq_event",
    "ibv_get_device_guid",
    "ibv_get_device_list",
    "ibv_get_device_name",
    "ibv_modify_qp",
    "ibv_open_device",
    "ibv_poll_cq",
    "ibv_post_recv",
    "ibv_post_send",
    "ibv_query_device",
    "ibv_query_gid",
    "ibv_query_pkey",
    "ibv_query_qp",
    "ibv_reg_mr",
    "ibv_req_notify_cq",
    "rdma_resolve_addr",
];

/// Beside those that the functions take.
const TYPES: &[&str] = &["rdma_addrinfo", "rdma_cm_event", "rdma_conn_param"];

/// Their values are combined.
const FLAGS: &[&str] = &[
    "ibv_access_flags",
    "ibv_device_cap_flags",
    "ibv_qp_attr_mask",
    "ibv_send_flags",
    "ibv_wc_flags",
];

/// Numbers with names: a newer kernel or library may say one without.
const NUMBERS: &[&str] = &[
    "ibv_event_type",
    "ibv_mig_state",
    "ibv_mtu",
    "ibv_port_state",
    "ibv_qp_state",
    "ibv_qp_type",
    "ibv_wc_status",
    "ibv_wr_opcode",
    "rdma_cm_event_type",
    "rdma_port_space",
];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={HEADERS}");
    let out = env::var("OUT_DIR")?;
    let out = Path::new(&out);
    let inline = out.join("inline.c");
    let mut builder = bindgen::Builder::default()
        .header(HEADERS)
        .wrap_static_fns(true)
        .wrap_static_fns_path(&inline)
        .allowlist_recursively(true)
        // The C library's are libc's.
        .blocklist_type("sockaddr.*|pthread_.*")
        .derive_copy(true)
        .derive_debug(false)
        .generate_comments(false)
        .prepend_enum_name(false)
        .formatter(bindgen::Formatter::Prettyplease);
    let mut compiler = cc::Build::new();
    for (name, least) in LIBRARIES {
        let library = pkg_config::Config::new()
            .atleast_version(least)
            .probe(name)?;
        for path in &library.include_paths {
            builder = builder.clang_arg(format!("-I{}", path.display()));
        }
        compiler.includes(library.include_paths);
    }
    for name in FUNCTIONS {
        builder = builder.allowlist_function(name);
    }
    for name in TYPES.iter().chain(FLAGS).chain(NUMBERS) {
        builder = builder.allowlist_type(name);
    }
    for name in FLAGS {
        builder = builder.bitfield_enum(name);
    }
    for name in NUMBERS {
        builder = builder.constified_enum_module(name);
    }
    builder.generate()?.write_to_file(out.join("bindings.rs"))?;
    compiler
        .file(&inline)
        .include(env::var("CARGO_MANIFEST_DIR")?)
        .compile("rdma-inline");
    Ok(())
}
