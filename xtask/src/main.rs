mod bench;

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.split_first() {
        Some((task, rest)) if task == "bench" => bench::run(rest),
        _ => anyhow::bail!("usage: cargo xtask bench …"),
    }
}
