//! What messages weigh: those that are made to be heavy, and those of real fleets.

use proptest::prelude::*;
use prost::Message;

use super::*;
use crate::fleet::v1 as fleet;
use crate::layout::Decodable;
use crate::operator::v1 as operator;

const MIB: usize = 1 << 20;
const URL: &str = "https://boinc.lab.example.org:8080/mersenne/";

fn weigh<M: Decodable>(bytes: &[u8]) -> Result<usize, Unfit> {
    of(M::layout(), bytes, M::ROOM.of(bytes.len()))
}

/// What an honest message weighs, as a multiple of its length.
fn passes<M: Message + Decodable + Default>(message: &M) -> f64 {
    let bytes = message.encode_to_vec();
    let weight = weigh::<M>(&bytes).unwrap();
    let ratio = weight as f64 / bytes.len() as f64;
    println!("{} bytes weigh {weight}, {ratio:.1} times as much", bytes.len());
    ratio
}

/// A field of these bytes: its key, their length, themselves.
fn field(key: u8, content: &[u8]) -> Vec<u8> {
    let mut bytes = vec![key];
    prost::encode_length_delimiter(content.len(), &mut bytes).unwrap();
    bytes.extend_from_slice(content);
    bytes
}

fn job(number: usize) -> fleet::Entry {
    let name = format!("mersenne_2026_11_27_workunit_{number:06}_0001");
    let key = format!("task/{URL}/{name}");
    let task = fleet::TaskState {
        project_url: URL.into(),
        name,
        phase: fleet::TaskPhase::Running.into(),
        cpu_time_micros: 3_600_000_000,
        fraction_done: 0.5,
        deadline_micros: 1_800_000_000_000_000,
        checkpoint_cpu_micros: 3_500_000_000,
    };
    fleet::Entry { key, value: Some(fleet::entry::Value::Task(task)) }
}

/// As short as a job's entry can be.
fn short_job(number: usize) -> fleet::Entry {
    let (project_url, name) = ("http://a/".to_owned(), number.to_string());
    let key = format!("task/{project_url}/{name}");
    let task = fleet::TaskState { project_url, name, ..Default::default() };
    fleet::Entry { key, value: Some(fleet::entry::Value::Task(task)) }
}

/// As much as a host may say of itself.
fn long_host() -> fleet::Entry {
    let text = "t".repeat(1_024);
    let limits = fleet::OwnerLimits {
        excluded_devices: (0..1_000).map(|device| format!("nvidia:{device}")).collect(),
        ..Default::default()
    };
    let host = fleet::HostState {
        hostname: text.clone(),
        document_refusal: text.clone(),
        document_rollback: text,
        declined_urls: (0..1_000).map(|project| format!("{URL}{project}/")).collect(),
        owner: Some(limits),
        day: Some(fleet::Metrics::default()),
        ..Default::default()
    };
    fleet::Entry { key: "host".into(), value: Some(fleet::entry::Value::Host(Box::new(host))) }
}

fn from_agent(entries: Vec<fleet::Entry>) -> fleet::FromAgent {
    let body = fleet::from_agent::Body::Snapshot(fleet::Snapshot { sequence: 1, entries });
    fleet::FromAgent { traceparent: String::new(), body: Some(body) }
}

fn workunit(number: usize, input: usize) -> operator::NewWorkunit {
    operator::NewWorkunit {
        application: "mersenne".into(),
        command_line: format!("--from {} --to {}", number * 1_000, (number + 1) * 1_000),
        inputs: vec![operator::InputFile {
            open_name: "in".into(),
            content: vec![7; input],
            ..Default::default()
        }],
        outputs: vec![operator::OutputFile { open_name: "out".into(), max_bytes: 1 << 20 }],
        flops_estimate: 1e12,
        flops_bound: 1e14,
        delay_bound_micros: 600_000_000,
        ..Default::default()
    }
}

fn submission(workunits: Vec<operator::NewWorkunit>) -> operator::SubmitRequest {
    operator::SubmitRequest { project: "sieve".into(), workunits, ..Default::default() }
}

#[test]
fn r6_10_a_message_of_many_empty_parts_is_known_to_be_too_heavy_before_it_is_decoded() {
    let filled = |part: &[u8]| part.repeat(8 * MIB / part.len());
    // Entries in a delta; entries of a host in it; keys that are gone; what a host declines.
    for parts in [&[0x12, 0][..], &[0x12, 2, 0x12, 0], &[0x1a, 0], &[0x12, 5, 0x12, 3, 0xca, 1, 0]] {
        let delta = field(0x22, &filled(parts));
        assert!(matches!(weigh::<fleet::FromAgent>(&delta), Err(Unfit::TooHeavy(_))), "{parts:?}");
    }
    // All that one host declines, and its places of words.
    for parts in [&[0xca, 1, 0][..], &[0x82, 2, 2, 0x1a, 0]] {
        let host = field(0x12, &field(0x12, &filled(parts)));
        assert!(
            matches!(weigh::<fleet::FromAgent>(&field(0x22, &host)), Err(Unfit::TooHeavy(_))),
            "{parts:?}"
        );
    }
    let filled = |part: &[u8]| part.repeat(64 * MIB / part.len());
    // Workunits, and files of theirs.
    for parts in [&[0x12, 0][..], &[0x12, 2, 0x22, 0], &[0x12, 4, 0x22, 0, 0x2a, 0]] {
        let unfit = weigh::<operator::SubmitRequest>(&filled(parts));
        assert!(matches!(unfit, Err(Unfit::TooHeavy(_))), "{parts:?}");
    }
    let files = field(0x12, &filled(&[0x22, 0]));
    assert!(matches!(weigh::<operator::SubmitRequest>(&files), Err(Unfit::TooHeavy(_))));
}

#[test]
fn r6_10_no_honest_message_is_too_heavy() {
    let hosts =
        |jobs: Vec<fleet::Entry>| passes(&from_agent(std::iter::once(long_host()).chain(jobs).collect()));
    assert!(hosts((0..20_000).map(job).collect()) < 5.0);
    assert!(hosts((0..10_000).map(job).collect()) < 5.0);
    hosts((0..20_000).map(short_job).collect());
    hosts(vec![]);
    let removed = (0..20_000).map(|number| short_job(number).key).collect();
    let delta = fleet::from_agent::Body::Delta(fleet::Delta { removed, ..Default::default() });
    passes(&fleet::FromAgent { traceparent: String::new(), body: Some(delta) });
    // As many workunits as may be submitted at once, with nothing or little in them; and 64 MiB of content.
    passes(&submission(vec![operator::NewWorkunit { flops_estimate: 1.0, ..Default::default() }; 100_000]));
    passes(&submission((0..100_000).map(|number| workunit(number, 0)).collect()));
    passes(&submission((0..100_000).map(|number| workunit(number, 550)).collect()));
    let with_files = |number: usize| {
        let one = workunit(number, 8);
        operator::NewWorkunit { inputs: vec![one.inputs[0].clone(); 4], ..one }
    };
    passes(&submission((0..100_000).map(with_files).collect()));
    assert!(passes(&submission(vec![workunit(0, 64 * MIB)])) < 1.1);
    // What agents are told, and operators are answered.
    let assignment = |number: usize| fleet::ProjectAssignment {
        name: number.to_string(),
        url: format!("{URL}{number}/"),
        without: vec!["nvidia".into()],
        ..Default::default()
    };
    let document = fleet::Document { projects: (0..1_000).map(assignment).collect(), ..Default::default() };
    let body = Some(fleet::from_coordinator::Body::Document(document));
    passes(&fleet::FromCoordinator { traceparent: String::new(), body });
    let tasks = |from: usize| {
        (from..from + 10_000).map(|number| match short_job(number).value {
            Some(fleet::entry::Value::Task(task)) => task,
            _ => fleet::TaskState::default(),
        })
    };
    let host = |number: usize| operator::Host { tasks: tasks(number).collect(), ..Default::default() };
    passes(&operator::ListHostsReply { hosts: (0..100).map(host).collect(), ..Default::default() });
    let idle = operator::Host {
        agent_id: "01KC3V9Z6T8Q4W2E5R7Y9U1I3O".into(),
        certificate_until_micros: 1_800_000_000_000_000,
        ..Default::default()
    };
    passes(&operator::ListHostsReply { hosts: vec![idle; 100_000], ..Default::default() });
}

#[test]
fn what_is_no_message_is_not_decoded() {
    for bytes in
        [&[0x22][..], &[0x22, 5, 1], &[0x08], &[0x09, 1, 2], &[0x0d, 1], &[0x80; 12], &[0x0b, 0x0c], &[0]]
    {
        assert!(weigh::<fleet::FromAgent>(bytes).is_err(), "{bytes:?}");
    }
    // Fields of a newer peer are passed over.
    let newer = [field(0xfa, &[]), vec![0xa8, 0x1f, 7]].concat();
    assert!(weigh::<fleet::FromAgent>(&newer[1..]).is_err());
    assert!(weigh::<fleet::FromAgent>(&[0xa8, 0x1f, 7, 0xaa, 0x1f, 1, 0xff]).is_ok());
}

#[test]
fn a_list_of_numbers_weighs_what_its_numbers_do_and_messages_lie_in_each_other_to_a_bound() {
    static NUMBERS: Layout = Layout { bytes: 24, fields: &[Kind::Plain, Kind::Numbers] };
    assert_eq!(of(&NUMBERS, &field(0x0a, &[1; 1_000]), MIB).unwrap(), 24 + 1_000 * 16 + ALLOCATION);
    assert_eq!(of(&NUMBERS, &[8, 1, 8, 1], MIB).unwrap(), 24 + 2 * (16 + ALLOCATION));
    static DEEP: Layout = Layout { bytes: 0, fields: &[Kind::Plain, Kind::Message(&DEEP)] };
    let nested = |times: usize| (0..times).fold(Vec::new(), |within, _| field(0x0a, &within));
    assert!(of(&DEEP, &nested(99), MIB).is_ok());
    assert!(matches!(of(&DEEP, &nested(100), MIB), Err(Unfit::TooDeep)));
}

fn text(text: &str) -> usize {
    text.len()
}

/// What a submission takes, by the room that its lists have.
fn taken(request: &operator::SubmitRequest) -> usize {
    let files = |workunit: &operator::NewWorkunit| {
        let input = |file: &operator::InputFile| {
            text(&file.open_name) + file.content.capacity() + text(&file.keep_as) + text(&file.sha256)
        };
        let inputs = workunit.inputs.iter().map(input).sum::<usize>();
        let outputs = workunit.outputs.iter().map(|file| text(&file.open_name)).sum::<usize>();
        inputs
            + outputs
            + workunit.inputs.capacity() * size_of::<operator::InputFile>()
            + workunit.outputs.capacity() * size_of::<operator::OutputFile>()
            + text(&workunit.application)
    };
    size_of_val(request)
        + request.workunits.capacity() * size_of::<operator::NewWorkunit>()
        + request.workunits.iter().map(files).sum::<usize>()
        + text(&request.project)
}

proptest! {
    #[test]
    fn r6_10_no_message_takes_more_than_it_weighs(files in prop::collection::vec((0..70_usize, 0..70_usize, 0..50_usize), 0..70)) {
        let workunits = files.into_iter().map(|(inputs, outputs, content)| {
            let one = workunit(1, content);
            operator::NewWorkunit {
                inputs: vec![one.inputs[0].clone(); inputs],
                outputs: vec![one.outputs[0].clone(); outputs],
                ..one
            }
        });
        let bytes = submission(workunits.collect()).encode_to_vec();
        let decoded = operator::SubmitRequest::decode(bytes.as_slice()).unwrap();
        prop_assert!(taken(&decoded) <= weigh::<operator::SubmitRequest>(&bytes).unwrap());
    }

    /// Whatever the decoder takes is weighed, and what is no message is refused by both.
    #[test]
    fn what_can_be_decoded_can_be_weighed(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let weighed = weigh::<fleet::FromAgent>(&bytes);
        let decoded = fleet::FromAgent::decode(bytes.as_slice());
        // A group of a field that is not known is passed over by the one and refused by the other.
        if !matches!(weighed, Err(Unfit::Group)) {
            prop_assert!(weighed.is_ok() || decoded.is_err(), "{weighed:?} {decoded:?}");
        }
    }
}
