//! `cc_config.xml`, BOINC's file for what its user sets of a client, in our terms: the options that have a
//! preference here.
//!
//! It limits: a value that is none, or that nobody can have meant, makes the whole file an error, for it may
//! have been what was to limit. What says that something is as usual says nothing. Options that are not
//! followed are listed in `docs/preferences.md`, and are skipped.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use fallow_boinc::FormatError;
use fallow_boinc::xml::{Reader, Tag};
use fallow_domain::{Duration, GpuExclusion, LocalPreferences, MasterUrl, ResourceType};

use crate::keys::Said;

/// Most programs of a kind that are named in a file.
const PROGRAMS_MAX: usize = 100;
/// No machine has more CPUs, and nobody has more files go at once.
const COUNT_MAX: i64 = 10_000;
/// Most exclusions of GPUs.
const EXCLUSIONS_MAX: usize = 100;
/// The highest number of a GPU.
const GPU_MAX: i64 = 63;

/// What a `cc_config.xml` says.
///
/// # Errors
/// When there is no `<cc_config>` in it, an element in it has no end, or what stands in one is no value of
/// it.
pub fn client_config(input: &[u8]) -> Result<Said, FormatError> {
    let mut reader = Reader::new("client configuration", input);
    let root = reader.root("cc_config")?;
    let mut said = Said::default();
    while let Some(tag) = reader.next_child(&root)? {
        if tag.name != "options" {
            reader.skip(&tag)?;
            continue;
        }
        while let Some(tag) = reader.next_child(&tag)? {
            option(&mut reader, &tag, &mut said)?;
        }
    }
    Ok(said)
}

fn option<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>, said: &mut Said) -> Result<(), FormatError> {
    match tag.name {
        "exclusive_app" => program(reader, tag, &mut said.exclusive_programs)?,
        "exclusive_gpu_app" => program(reader, tag, &mut said.exclusive_gpu_programs)?,
        // -1 and 0 are all that there are.
        "ncpus" => said.cpus_max = count(reader, tag, -1..=COUNT_MAX)?.map(Some),
        "exclude_gpu" => exclude_gpu(reader, tag, &mut said.excluded_of_projects)?,
        "no_gpus" => said.use_gpus = flag(reader, tag)?.then_some(false),
        "max_file_xfers" => said.files_at_once = count(reader, tag, 1..=COUNT_MAX)?,
        "max_file_xfers_per_project" => said.files_at_once_of_project = count(reader, tag, 1..=COUNT_MAX)?,
        "report_results_immediately" => said.report_at_once = flag(reader, tag)?.then_some(true),
        "start_delay" => said.start_delay = seconds(reader, tag, LocalPreferences::START_DELAY_MAX)?,
        _ => reader.skip(tag)?,
    }
    Ok(())
}

/// Takes in a program. Some write its path: the name of its file counts.
fn program<'a>(
    reader: &mut Reader<'a>,
    tag: &Tag<'a>,
    programs: &mut Option<BTreeSet<String>>,
) -> Result<(), FormatError> {
    let path = text(reader, tag, "the name of a program")?;
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default().trim();
    if name.is_empty() {
        return Ok(());
    }
    let one = BTreeSet::from([name.to_owned()]);
    let mut values = LocalPreferences { exclusive_programs: one, ..LocalPreferences::default() };
    let all = programs.get_or_insert_default();
    all.append(&mut values.exclusive_programs.clone());
    if all.len() > PROGRAMS_MAX {
        return Err(reader.error_at(tag, format!("at most {PROGRAMS_MAX} programs")));
    }
    values.exclusive_programs.clone_from(all);
    values
        .check()
        .map_err(|_| reader.error_at(tag, "the name of a program's file, without control characters"))
}

/// Takes in GPUs that a project is to leave alone.
fn exclude_gpu<'a>(
    reader: &mut Reader<'a>,
    parent: &Tag<'a>,
    exclusions: &mut Option<BTreeSet<GpuExclusion>>,
) -> Result<(), FormatError> {
    let (mut url, mut kind, mut number, mut app) = (None, None, None, None);
    while let Some(tag) = reader.next_child(parent)? {
        match tag.name {
            "url" => {
                let text = text(reader, &tag, "a project's URL")?;
                let parsed = MasterUrl::parse(&text);
                url = Some(parsed.map_err(|_| reader.error_at(&tag, "a project's URL"))?);
            }
            "type" => kind = kind_of_gpu(reader, &tag)?,
            // -1 is all of them.
            "device_num" => number = u32::try_from(whole(reader, &tag, -1..=GPU_MAX)?).ok(),
            "app" => {
                let name = text(reader, &tag, "the name of an application")?;
                app = (!name.is_empty()).then_some(name);
            }
            _ => reader.skip(&tag)?,
        }
    }
    let url = url.ok_or_else(|| reader.error_at(parent, "the <url> of a project in it"))?;
    let one = GpuExclusion::new(url, kind, number, app);
    let one = one.map_err(|_| reader.error_at(parent, "the short name of an application"))?;
    let all = exclusions.get_or_insert_default();
    all.insert(one);
    match all.len() > EXCLUSIONS_MAX {
        true => Err(reader.error_at(parent, format!("at most {EXCLUSIONS_MAX} exclusions"))),
        false => Ok(()),
    }
}

/// None for all kinds.
fn kind_of_gpu<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<ResourceType>, FormatError> {
    let expected = "NVIDIA, ATI, intel_gpu or apple_gpu";
    match text(reader, tag, expected)?.to_ascii_lowercase().as_str() {
        "" => Ok(None),
        "nvidia" | "cuda" => Ok(Some(ResourceType::Nvidia)),
        "ati" | "amd" => Ok(Some(ResourceType::Amd)),
        "intel_gpu" => Ok(Some(ResourceType::Intel)),
        "apple_gpu" => Ok(Some(ResourceType::Apple)),
        _ => Err(reader.error_at(tag, expected)),
    }
}

/// How many of something; nothing and less is as many as there are.
fn count<'a>(
    reader: &mut Reader<'a>,
    tag: &Tag<'a>,
    range: RangeInclusive<i64>,
) -> Result<Option<NonZeroU32>, FormatError> {
    let number = whole(reader, tag, range)?;
    Ok(u32::try_from(number).ok().and_then(NonZeroU32::new))
}

fn whole<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>, range: RangeInclusive<i64>) -> Result<i64, FormatError> {
    let expected = format!("a whole number from {} to {}", range.start(), range.end());
    let text = text(reader, tag, &expected)?;
    let number = text.parse::<i64>().ok().filter(|number| range.contains(number));
    number.ok_or_else(|| reader.error_at(tag, expected))
}

/// A time; none for 0.
fn seconds<'a>(
    reader: &mut Reader<'a>,
    tag: &Tag<'a>,
    most: Duration,
) -> Result<Option<Duration>, FormatError> {
    let most = most.as_secs_f64();
    let expected = format!("a number of seconds from 0 to {most:.0}");
    let text = text(reader, tag, &expected)?;
    let number = text.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
    let number = number.ok_or_else(|| reader.error_at(tag, expected))?;
    Ok((number > 0.0).then(|| Duration::from_secs_f64(number)))
}

fn flag<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<bool, FormatError> {
    let expected = "0, 1 or nothing";
    if tag.empty {
        reader.skip(tag)?;
        return Ok(true);
    }
    match text(reader, tag, expected)?.as_str() {
        "1" | "" => Ok(true),
        "0" => Ok(false),
        _ => Err(reader.error_at(tag, expected)),
    }
}

fn text<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>, expected: &str) -> Result<String, FormatError> {
    let text = reader.text(tag)?.map(|text| text.trim().to_owned());
    text.ok_or_else(|| reader.error_at(tag, expected))
}

#[cfg(test)]
mod tests {
    use fallow_domain::Fraction;

    use super::*;
    use crate::keys::Values;
    use crate::{Origin, Source, in_force};

    fn read(options: &str) -> Result<Said, FormatError> {
        client_config(format!("<cc_config>\n<options>\n{options}\n</options>\n</cc_config>").as_bytes())
    }

    fn names(programs: Option<BTreeSet<String>>) -> Vec<String> {
        programs.unwrap().into_iter().collect()
    }

    #[test]
    fn r6_4_exclusive_programs_of_a_client_configuration_are_known_by_their_names() {
        let text = b"<cc_config><log_flags><task>1</task></log_flags><options>\
            <exclusive_app>game</exclusive_app><exclusive_app>/usr/bin/blender</exclusive_app>\
            <exclusive_gpu_app>steam</exclusive_gpu_app>\
            <max_file_xfers>4</max_file_xfers></options></cc_config>";
        let said = client_config(text).unwrap();
        assert_eq!(names(said.exclusive_programs), ["blender", "game"]);
        assert_eq!(names(said.exclusive_gpu_programs), ["steam"]);
        assert!(client_config(b"<cc_config></cc_config>").unwrap().is_empty());
        assert!(client_config(b"<cc_config><options>").is_err());
    }

    #[test]
    fn r6_4_options_of_a_client_configuration_limit_and_what_is_as_usual_says_nothing() {
        let of = |options: &str| {
            let source = Source::limits(Origin::ClientConfig, read(options).unwrap());
            let Values { mut fleet } = in_force(&[source]).values;
            let local = std::mem::take(&mut fleet.local);
            assert_eq!(fleet.cpu_fraction, Fraction::ONE);
            local
        };
        let usual = LocalPreferences::default();
        let said = of("<ncpus>3</ncpus><no_gpus>1</no_gpus><max_file_xfers>5</max_file_xfers>\
             <max_file_xfers_per_project>1</max_file_xfers_per_project>\
             <report_results_immediately/><start_delay>90.5</start_delay>");
        let number = |number| NonZeroU32::new(number).unwrap();
        let expected = LocalPreferences {
            cpus_max: Some(number(3)),
            use_gpus: false,
            files_at_once: number(5),
            files_at_once_of_project: number(1),
            report_at_once: true,
            start_delay: Duration::from_secs_f64(90.5),
            ..usual.clone()
        };
        assert_eq!(said, expected);
        let gpus =
            of("<exclude_gpu><url>https://Example.org/p</url><device_num>1</device_num><type>ATI</type>\
             <app>sieve</app></exclude_gpu><exclude_gpu><url>https://example.org/q/</url></exclude_gpu>");
        let gpus: Vec<String> = gpus.excluded_of_projects.iter().map(ToString::to_string).collect();
        assert_eq!(gpus, ["https://example.org/p/ amd:1 sieve", "https://example.org/q/ all"]);
        // As the stock client writes it.
        let as_usual = "<ncpus>-1</ncpus><no_gpus>0</no_gpus><start_delay>0.000000</start_delay>\
             <report_results_immediately>0</report_results_immediately><exclusive_app></exclusive_app>";
        assert!(read(as_usual).unwrap().is_empty());
        // It cannot loosen.
        let more =
            "<max_file_xfers>80</max_file_xfers><max_file_xfers_per_project>20</max_file_xfers_per_project>";
        assert_eq!(of(more), usual);
    }

    #[test]
    fn r6_4_what_is_no_value_of_an_option_makes_the_file_an_error_that_names_it() {
        let many = |n| format!("<exclusive_gpu_app>a{n}</exclusive_gpu_app>");
        let many: String = (0..=PROGRAMS_MAX).map(many).collect();
        let long = format!("<exclusive_app>{}</exclusive_app>", "x".repeat(300));
        for (options, element) in [
            ("<ncpus>two</ncpus>", "ncpus"),
            ("<ncpus>-7</ncpus>", "ncpus"),
            ("<ncpus>99999999999999999999</ncpus>", "ncpus"),
            ("<ncpus><x/></ncpus>", "ncpus"),
            ("<max_file_xfers>0</max_file_xfers>", "max_file_xfers"),
            ("<max_file_xfers>1.5</max_file_xfers>", "max_file_xfers"),
            ("<max_file_xfers_per_project/>", "max_file_xfers_per_project"),
            ("<no_gpus>maybe</no_gpus>", "no_gpus"),
            ("<report_results_immediately>2</report_results_immediately>", "report_results_immediately"),
            ("<start_delay>nan</start_delay>", "start_delay"),
            ("<start_delay>-1</start_delay>", "start_delay"),
            ("<start_delay>1e300</start_delay>", "start_delay"),
            ("<exclude_gpu><device_num>0</device_num></exclude_gpu>", "exclude_gpu"),
            ("<exclude_gpu><url>no url</url></exclude_gpu>", "url"),
            ("<exclude_gpu><url>http://p.q/</url><type>matrox</type></exclude_gpu>", "type"),
            ("<exclude_gpu><url>http://p.q/</url><device_num>99</device_num></exclude_gpu>", "device_num"),
            (many.as_str(), "exclusive_gpu_app"),
            (long.as_str(), "exclusive_app"),
        ] {
            let error = read(options).unwrap_err();
            assert_eq!((error.place.element.as_str(), error.place.line), (element, 3), "{options}: {error}");
        }
    }
}
