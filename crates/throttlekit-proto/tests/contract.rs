//! Holds the wire still: what the descriptors say must be what the tables in `contract/` say.
//!
//! * `v1.txt` is what existing clients speak. It never changes.
//! * `additions.txt` is ours. Lines are added to it; a line that was released never changes.
//! * `envoy.txt` is the part of Envoy's API that we speak. Its names and numbers are Envoy's.
//!
//! A line is `message.field number type label`, `enum name.VALUE number` or `rpc service.method request answer`. A
//! label is `single`, `optional` (absent differs from the default) or `repeated`.

use std::collections::BTreeSet;

use prost::Message;
use prost_types::field_descriptor_proto::Label;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
    MethodDescriptorProto,
};
use throttlekit_proto::DESCRIPTORS;

const V1: &str = include_str!("contract/v1.txt");
const ADDITIONS: &str = include_str!("contract/additions.txt");
const ENVOY: &str = include_str!("contract/envoy.txt");

/// Where additions to a message of the frozen contract begin.
const ADDITIONS_BEGIN: i32 = 100;

#[test]
fn our_wire_is_the_frozen_contract_and_the_known_additions() {
    assert_same(&table_of("throttlekit."), &[V1, ADDITIONS].concat());
}

/// But for the values of descriptors and headers, which are strings there: bytes are the same on the wire, and clients may
/// send what is no UTF-8.
#[test]
fn what_we_speak_of_envoys_wire_is_envoys() {
    assert_same(&table_of("envoy."), ENVOY);
}

#[test]
fn the_frozen_contract_has_every_line() {
    // Counted in the descriptor that existing clients carry, so that a line lost from the table is seen.
    assert_eq!(V1.lines().count(), 118);
}

#[test]
fn additions_to_frozen_messages_stay_clear_of_their_numbers() {
    let frozen: BTreeSet<&str> = V1.lines().filter_map(message_of).collect();
    let added = ADDITIONS.lines().filter(|line| message_of(line).is_some_and(|name| frozen.contains(name)));
    let numbers: Vec<i32> = added.map(number_of).collect();
    assert!(!numbers.is_empty());
    assert!(numbers.iter().all(|&number| number >= ADDITIONS_BEGIN), "{numbers:?}");
}

#[test]
fn descriptors_hold_every_file_that_they_import() {
    let files = files();
    let names: BTreeSet<&str> = files.iter().map(FileDescriptorProto::name).collect();
    let imports: BTreeSet<&str> =
        files.iter().flat_map(|file| &file.dependency).map(String::as_str).collect();
    assert!(imports.contains("google/protobuf/struct.proto"));
    assert!(imports.is_subset(&names), "{imports:?} in {names:?}");
}

fn assert_same(wire: &BTreeSet<String>, contract: &str) {
    let contract: BTreeSet<String> = contract.lines().map(str::to_owned).collect();
    let lost: Vec<_> = contract.difference(wire).collect();
    let new: Vec<_> = wire.difference(&contract).collect();
    assert!(lost.is_empty() && new.is_empty(), "the wire changed\nlost: {lost:#?}\nnew: {new:#?}");
}

/// The message of a line about a field.
fn message_of(line: &str) -> Option<&str> {
    let name = line.split(' ').next()?;
    name.rsplit_once('.').map(|(message, _)| message)
}

fn number_of(line: &str) -> i32 {
    line.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number after the name")
}

fn files() -> Vec<FileDescriptorProto> {
    FileDescriptorSet::decode(DESCRIPTORS).expect("descriptors that decode").file
}

fn table_of(packages: &str) -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    for file in files().iter().filter(|file| file.package().starts_with(packages)) {
        let within = |name: &str| format!("{}.{name}", file.package());
        for message in &file.message_type {
            add_message(&mut lines, &within(message.name()), message);
        }
        for values in &file.enum_type {
            add_enum(&mut lines, &within(values.name()), values);
        }
        for service in &file.service {
            let methods = service.method.iter();
            lines.extend(methods.map(|method| method_line(&within(service.name()), method)));
        }
    }
    lines
}

fn add_message(lines: &mut BTreeSet<String>, name: &str, message: &DescriptorProto) {
    lines.extend(message.field.iter().map(|field| field_line(name, field)));
    for values in &message.enum_type {
        add_enum(lines, &format!("{name}.{}", values.name()), values);
    }
    for inner in &message.nested_type {
        add_message(lines, &format!("{name}.{}", inner.name()), inner);
    }
}

fn add_enum(lines: &mut BTreeSet<String>, name: &str, values: &EnumDescriptorProto) {
    lines.extend(values.value.iter().map(|value| format!("enum {name}.{} {}", value.name(), value.number())));
}

fn field_line(message: &str, field: &FieldDescriptorProto) -> String {
    let kind = match field.type_name().strip_prefix('.') {
        Some(named) => named.to_owned(),
        None => field.r#type().as_str_name().trim_start_matches("TYPE_").to_lowercase(),
    };
    let label = match field.label() {
        Label::Repeated => "repeated",
        _ if field.proto3_optional() => "optional",
        _ => "single",
    };
    format!("{message}.{} {} {kind} {label}", field.name(), field.number())
}

fn method_line(service: &str, method: &MethodDescriptorProto) -> String {
    let asked = if method.client_streaming() { "stream " } else { "" };
    let answered = if method.server_streaming() { "stream " } else { "" };
    let (input, output) = (&method.input_type()[1..], &method.output_type()[1..]);
    format!("rpc {service}.{} {asked}{input} {answered}{output}", method.name())
}
