//! `cargo fuzz run wire`: see `throttlekit_fuzz::wire`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    throttlekit_fuzz::wire(data);
});
