//! `cargo fuzz run policy`: see `throttlekit_fuzz::policy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    throttlekit_fuzz::policy(data);
});
