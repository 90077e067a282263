use super::*;
use crate::models::check::explore;

#[test]
fn probe() {
    let numbers: Vec<u8> = std::env::var("PROBE").unwrap().split(',').map(|n| n.parse().unwrap()).collect();
    let [nodes, limit, lives, linger, letters, reports, ticks, deaths, leaves, losses, demand] = numbers[..]
    else {
        panic!()
    };
    let room = Room { letters: letters.into(), reports, ticks, deaths, leaves, losses };
    let split = if demand > 0 { Split::Demand } else { Split::Equal };
    let fleet = Fleet { nodes: nodes.into(), limit, split, lives, linger, room, seam: Seam::Sound };
    println!("{:?}", explore(fleet, 2));
}
