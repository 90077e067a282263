//! Calls to the operating system and the processor. The one file with unsafe code, besides the allocator.

use std::fs;
use std::mem::MaybeUninit;

/// Returns the processor time of this thread in nanoseconds: preemption does not count.
#[inline]
pub fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Returns the wall time in nanoseconds, comparable across threads.
#[inline]
pub fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

#[inline]
fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the pointer is valid for a timespec, and a result of zero means that it was written.
    let time = unsafe {
        assert_eq!(libc::clock_gettime(clock, time.as_mut_ptr()), 0, "the clock answers");
        time.assume_init()
    };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the number of involuntary context switches of this thread.
pub fn involuntary_switches() -> i64 {
    let mut usage = MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the pointer is valid for an rusage, and a result of zero means that it was written.
    let usage = unsafe {
        assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()), 0, "usage is told");
        usage.assume_init()
    };
    usage.ru_nivcsw
}

/// Returns the resident bytes of this process.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux tells memory in statm");
    let pages: u64 = statm.split(' ').nth(1).and_then(|field| field.parse().ok()).expect("resident pages");
    // SAFETY: sysconf reads no memory of ours.
    pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64
}

/// Returns the processor model, the number of cores, and the load.
pub fn machine() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("{}, {cores} cores, load {load}", model.trim_start_matches(['\t', ' ', ':']))
}

/// Returns the bytes that the allocator really reserved for a live allocation, its own header included.
pub fn allocated_bytes(pointer: *mut u8) -> usize {
    const HEADER: usize = size_of::<usize>();
    // SAFETY: called only by our allocator, with pointers that malloc returned and that were not freed yet.
    unsafe { libc::malloc_usable_size(pointer.cast()) + HEADER }
}

/// Waits until every earlier instruction is done, so that two checks do not overlap.
#[inline(always)]
pub fn fence() {
    // SAFETY: SSE2 is part of every x86-64 processor.
    #[allow(unused_unsafe)]
    unsafe {
        core::arch::x86_64::_mm_lfence();
    }
}

/// Returns the processor's raw counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: user code may read the counter on every system this benchmark runs on.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Starts loading a cache line.
#[inline(always)]
pub fn prefetch<T>(place: &T) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch has no effect but on speed.
    unsafe { _mm_prefetch::<_MM_HINT_T0>((&raw const *place).cast()) }
}
