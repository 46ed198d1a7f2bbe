//! What a CPU is called, in the words of BOINC's client: plan classes and people's statistics go by them.

/// A CPU as `/proc/cpuinfo` describes the first one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cpu {
    /// BOINC: `p_vendor`.
    pub(super) vendor: String,
    /// BOINC: `p_model`.
    pub(super) model: String,
    /// BOINC: `p_features`.
    pub(super) features: String,
}

impl Cpu {
    /// Reads the text of `/proc/cpuinfo`. On ARM other lines say what a CPU is, and BOINC writes them
    /// otherwise.
    pub(super) fn read(text: &str, is_arm: bool) -> Self {
        let value = |keys: &[&str]| keys.iter().find_map(|key| value_of(text, key)).unwrap_or_default();
        let (vendor, name, details) = if is_arm {
            // The board is better than nothing.
            ("ARM".to_owned(), value(&["model name", "Processor", "Hardware"]), arm_details(text))
        } else {
            (value(&["vendor_id"]), value(&["model name"]), details(text))
        };
        let model = collapsed(&format!("{name}{details}"));
        Self { vendor: collapsed(&vendor), model, features: value(&["flags", "Features"]) }
    }
}

/// The value of the first line that begins with this key and a colon.
pub(super) fn value_of(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// ` [Family 6 Model 167 Stepping 1]`, of what is known.
fn details(text: &str) -> String {
    let number = |key| value_of(text, key).and_then(|value| value.parse::<u32>().ok());
    let (family, model, stepping) = (number("cpu family"), number("model"), number("stepping"));
    if family.is_none() && model.is_none() && stepping.unwrap_or(0) == 0 {
        return String::new();
    }
    let family = family.map_or_else(String::new, |family| format!("Family {family} "));
    let model = model.map_or_else(String::new, |model| format!("Model {model} "));
    let stepping = stepping.map_or_else(String::new, |stepping| format!("Stepping {stepping}"));
    format!(" [{family}{model}{stepping}]")
}

/// ` [Impl 0x41 Arch 8 Variant 0x3 Part 0xd0c Rev 1]`, of what is known.
fn arm_details(text: &str) -> String {
    let parts = [
        ("Impl", "CPU implementer"),
        ("Arch", "CPU architecture"),
        ("Variant", "CPU variant"),
        ("Part", "CPU part"),
        ("Rev", "CPU revision"),
    ];
    let part =
        |(word, key)| Some(format!("{word} {}", value_of(text, key).filter(|value| !value.is_empty())?));
    let known: Vec<String> = parts.into_iter().filter_map(part).collect();
    if known.is_empty() { String::new() } else { format!(" [{}]", known.join(" ")) }
}

/// Blanks in a row are one.
fn collapsed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r6_2_a_cpu_is_named_with_family_model_and_stepping() {
        let text = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 167\nmodel name\t: Intel(R)  Xeon(R)\n\
                    stepping\t: 1\nflags\t\t: fpu vme\n\nmodel\t\t: 168\n";
        let cpu = Cpu::read(text, false);
        assert_eq!(cpu.model, "Intel(R) Xeon(R) [Family 6 Model 167 Stepping 1]");
        assert_eq!((cpu.vendor.as_str(), cpu.features.as_str()), ("GenuineIntel", "fpu vme"));
        assert_eq!(Cpu::read("model name : x\nstepping : 0", false).model, "x");
        assert_eq!(Cpu::read("", false), Cpu::default());
    }

    #[test]
    fn r6_2_a_cpu_of_arm_is_named_by_its_parts() {
        let text = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n\
                    CPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n";
        let cpu = Cpu::read(text, true);
        assert_eq!(cpu.model, "[Impl 0x41 Arch 8 Variant 0x3 Part 0xd0c Rev 1]");
        assert_eq!((cpu.vendor.as_str(), cpu.features.as_str()), ("ARM", "fp asimd"));
    }
}
