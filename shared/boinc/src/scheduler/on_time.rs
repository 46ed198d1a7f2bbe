//! How long a host computes within times to come, as an element of our own in `time_stats`.
//!
//! It is one element with plain text, `fallow_on_time`, which servers that do not know it pass over. Its rows
//! are parted by spaces; a row is the time to come, what of it is sure and what is possible, in whole seconds
//! parted by colons: `3600:3100:3600 7200:5000:7100`. It is only sent to projects that plan with a host's
//! whole workload.
//!
//! Who sends it is not trusted: a text that is long, or rows that cannot be, are taken for none.

use fallow_domain::{Duration, ON_TIME_ROWS_MAX, OnTimeTable, OnTimeWithin};

use crate::FormatError;
use crate::xml::{Reader, Tag, Value, Writer};

/// A longer text is none of ours.
const TEXT_MAX: usize = 1_024;

impl Value for OnTimeTable {
    fn read<'a>(reader: &mut Reader<'a>, tag: &Tag<'a>) -> Result<Option<Self>, FormatError> {
        if tag.empty {
            return Ok(None);
        }
        Ok(reader.text(tag)?.filter(|text| text.len() <= TEXT_MAX).and_then(|text| table(&text)))
    }

    fn write(&self, name: &str, writer: &mut Writer) {
        let secs = |duration: Duration| duration.as_secs_f64() as u64;
        let row = |row: &OnTimeWithin| {
            let OnTimeWithin { length, sure, possible } = *row;
            format!("{}:{}:{}", secs(length), secs(sure), secs(possible))
        };
        let rows: Vec<String> = self.rows().iter().map(row).collect();
        writer.text(name, &rows.join(" "));
    }
}

fn table(text: &str) -> Option<OnTimeTable> {
    let rows = text.split_ascii_whitespace().take(ON_TIME_ROWS_MAX + 1).map(row);
    OnTimeTable::new(rows.collect::<Option<Vec<_>>>()?)
}

fn row(text: &str) -> Option<OnTimeWithin> {
    let mut parts = text.split(':').map(|secs| secs.parse::<u32>().ok());
    let mut next = || parts.next().flatten().map(|secs| Duration::from_secs(i64::from(secs)));
    let row = OnTimeWithin { length: next()?, sure: next()?, possible: next()? };
    parts.next().is_none().then_some(row)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::SchedulerRequest;

    fn read(element: &str) -> Option<OnTimeTable> {
        let text = format!(
            "<scheduler_request><time_stats>{element}<on_frac>0.5</on_frac></time_stats></scheduler_request>"
        );
        let request = SchedulerRequest::parse(text.as_bytes()).unwrap();
        assert_eq!(request.time_stats.on_frac, 0.5, "{element}");
        request.time_stats.fallow_on_time
    }

    #[test]
    fn a_hosts_on_time_reads_back_as_it_was_written_and_is_small() {
        let hour = Duration::from_hours(1);
        let row =
            |n: i64| OnTimeWithin { length: hour * 21 * n, sure: hour * 10 * n, possible: hour * 20 * n };
        let table = OnTimeTable::new((1..=24).map(row).collect()).unwrap();
        let mut request = SchedulerRequest::default();
        let without = request.write();
        assert!(!without.contains("on_time"), "{without}");
        request.time_stats.fallow_on_time = Some(table);
        let with = request.write();
        assert!(with.len() - without.len() < 1_000);
        assert_eq!(SchedulerRequest::parse(with.as_bytes()).unwrap(), request);
    }

    #[test]
    fn what_cannot_be_is_passed_over_and_what_stands_beside_it_is_read() {
        let one = read("<fallow_on_time>3600:1800:3000\n 7200:1800:3600</fallow_on_time>").unwrap();
        assert_eq!(one.rows().len(), 2);
        let long = "1:0:0 ".repeat(1_000);
        let many: String = (1..200).map(|secs| format!("{secs}:0:0 ")).collect();
        for bad in [
            "",
            " ",
            "x",
            "1",
            "1:1",
            "1:1:1:1",
            "1:2:2",
            "-1:-1:-1",
            "1:nan:1",
            "1e9:1:1",
            "2:1:1 1:1:1",
            "99999999999999999999:1:1",
            "4294967295:1:1",
            "3600:1800:3000 x",
            &long,
            &many,
        ] {
            assert_eq!(read(&format!("<fallow_on_time>{bad}</fallow_on_time>")), None, "{bad}");
        }
        assert_eq!(read("<fallow_on_time/>"), None);
        assert_eq!(read("<fallow_on_time><a>1:1:1</a></fallow_on_time>"), None);
    }
}
