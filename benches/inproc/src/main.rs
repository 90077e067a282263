//! In-process benchmarks compared with peers, checked against the thresholds. `cargo xtask bench inproc` runs
//! them, `cargo xtask bench lease` those of leases, and `admission`, `budget`, `fair`, `sketch` and `slots`
//! instead those of policies, of token budgets, of tenants that share a budget, of sketches and of slots.

mod admission;
mod alloc;
mod budget;
mod child;
mod contenders;
mod fair;
mod flood;
mod growth;
mod harness;
mod instructions;
mod lease;
mod memory;
mod os;
mod pair;
mod report;
mod sketch;
mod slots;
mod thresholds;
mod timing;
mod workloads;

use std::env;
use std::process::ExitCode;

use report::Report;
use timing::Section;

#[global_allocator]
static ALLOCATOR: alloc::Counting = alloc::Counting;

const USAGE: &str =
    "usage: inproc [lease|admission|budget|fair|sketch|slots] [--quick] [--rounds N] [--only PART] [--require-callgrind]
PART is one of hot, 1m, keyless, denied, hot-2t, 1m-2t, keyless-2t, memory, growth, flood, instructions;
of leases one of lease, lease-2t, instructions; of budgets one of budget, budget-2t, instructions;
of sketches one of sketch-10k, sketch-1m, sketch-10k-2t, sketch-1m-2t, instructions;
of slots one of slots, slots-2t, instructions;
of admission one of admission, admission-2t, admission-rate-denies, admission-full, admission-queue, instructions";
/// The parts that are not timed sections.
const PROBES: [&str; 4] = ["memory", "growth", "flood", "instructions"];
const ROUNDS: usize = 41;
const ROUNDS_QUICK: usize = 11;
/// More would exhaust a hot key's burst.
const ROUNDS_MAX: usize = 200;

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["memory"] => println!("{}", memory::probe()),
        ["growth", who] => println!("{}", growth::probe(who)),
        ["flood"] => println!("{}", flood::probe()),
        ["callgrind", name, count] => instructions::probe(name, count.parse().expect("a count")),
        ["lease", options @ ..] => return suite(options, lease::SECTIONS, lease_probes),
        ["fair", options @ ..] => {
            return suite(options, &[], |report, options| fair::judge(report, options.rounds));
        }
        ["sketch", options @ ..] => return suite(options, sketch::SECTIONS, sketch_probes),
        ["slots", options @ ..] => return suite(options, slots::SECTIONS, slots_probes),
        ["admission", options @ ..] => return suite(options, admission::SECTIONS, admission_probes),
        ["budget", options @ ..] => return suite(options, budget::SECTIONS, budget_probes),
        options => return suite(options, timing::SECTIONS, probes),
    }
    ExitCode::SUCCESS
}

/// Runs the timed sections, then the probes.
fn suite(options: &[&str], sections: &[Section], probes: fn(&mut Report, &Options<'_>)) -> ExitCode {
    let Some(options) = Options::parse(options, sections) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut report = Report::default();
    report.note("machine", os::machine());
    report.note("rounds", options.rounds);
    timing::run(&mut report, sections, options.rounds, options.only);
    probes(&mut report, &options);
    if report.end() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn lease_probes(report: &mut Report, options: &Options<'_>) {
    if options.wants("instructions") {
        instructions::tell(report, options.require_callgrind, &lease::COUNTED);
    }
}

fn admission_probes(report: &mut Report, options: &Options<'_>) {
    if options.wants("instructions") {
        instructions::tell(report, options.require_callgrind, &admission::COUNTED);
    }
}

fn sketch_probes(report: &mut Report, options: &Options<'_>) {
    if options.wants("instructions") {
        instructions::tell(report, options.require_callgrind, &sketch::COUNTED);
    }
}

fn budget_probes(report: &mut Report, options: &Options<'_>) {
    if options.wants("instructions") {
        instructions::tell(report, options.require_callgrind, &budget::COUNTED);
    }
}

fn slots_probes(report: &mut Report, options: &Options<'_>) {
    if options.wants("instructions") {
        instructions::tell(report, options.require_callgrind, &slots::COUNTED);
    }
}

fn probes(report: &mut Report, options: &Options<'_>) {
    if options.wants("memory") {
        memory::judge(report);
    }
    if options.wants("growth") {
        growth::judge(report);
    }
    if options.wants("flood") {
        flood::judge(report);
    }
    if options.wants("instructions") {
        instructions::judge(report, options.require_callgrind);
    }
}

struct Options<'a> {
    rounds: usize,
    only: Option<&'a str>,
    require_callgrind: bool,
}

impl<'a> Options<'a> {
    fn parse(mut words: &[&'a str], sections: &[Section]) -> Option<Self> {
        let mut options = Self { rounds: ROUNDS, only: None, require_callgrind: false };
        while let [word, rest @ ..] = words {
            words = match (*word, rest) {
                ("--quick", rest) => {
                    options.rounds = ROUNDS_QUICK;
                    rest
                }
                ("--require-callgrind", rest) => {
                    options.require_callgrind = true;
                    rest
                }
                ("--rounds", [count, rest @ ..]) => {
                    options.rounds = count.parse().ok().filter(|count| (1..=ROUNDS_MAX).contains(count))?;
                    rest
                }
                ("--only", [part, rest @ ..]) => {
                    options.only = Some(Some(*part).filter(|part| is_part(sections, part))?);
                    rest
                }
                _ => return None,
            };
        }
        Some(options)
    }

    fn wants(&self, part: &str) -> bool {
        self.only.is_none_or(|only| only == part)
    }
}

fn is_part(sections: &[Section], name: &str) -> bool {
    sections.iter().map(|section| section.name).chain(PROBES).any(|part| part == name)
}
