// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exported symbols with versions.

/// Exports `$function` under `$name@@$version`; the version must stand in `librdmacm-apm.map`.
///
/// `#[no_mangle]` cannot do it: rustc gives such symbols the base version in its own version
/// script, and the first assignment wins. A versioned name that is set in assembly is not touched
/// by any script.
macro_rules! export {
    ($name:literal, $version:literal, $function:path) => {
        std::arch::global_asm!(
            concat!(".pushsection .text.", $name, ", \"ax\", @progbits"),
            concat!(".globl rdmacm_apm_export_", $name),
            concat!(".type rdmacm_apm_export_", $name, ", @function"),
            concat!("rdmacm_apm_export_", $name, ":"),
            ".cfi_startproc",
            $crate::export::jump!(),
            ".cfi_endproc",
            concat!(".size rdmacm_apm_export_", $name, ", . - rdmacm_apm_export_", $name),
            concat!(".symver rdmacm_apm_export_", $name, ", ", $name, "@@", $version),
            ".popsection",
            function = sym $function,
        );
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! jump {
    () => {
        "jmp {function}"
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! jump {
    () => {
        "b {function}"
    };
}

pub(crate) use {export, jump};
