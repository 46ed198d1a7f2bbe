use super::*;

const FILE: &str = "<app_config>
  <!-- of the lab -->
  <app>
    <name>mersenne</name>
    <max_concurrent>2</max_concurrent>
    <fraction_done_exact/>
    <report_results_immediately>1</report_results_immediately>
    <gpu_versions><gpu_usage>0.5</gpu_usage><cpu_usage>.25</cpu_usage></gpu_versions>
  </app>
  <app_version>
    <app_name>mersenne</app_name>
    <plan_class>mt</plan_class>
    <avg_ncpus>3</avg_ncpus>
    <ngpus>0</ngpus>
    <cmdline>--threads 3 &amp; more</cmdline>
  </app_version>
  <project_max_concurrent>4</project_max_concurrent>
  <report_results_immediately/>
</app_config>
";

fn read(inside: &str) -> Result<(AppConfig, Vec<Remark>), Vec<Remark>> {
    AppConfig::parse(format!("<app_config>\n{inside}\n</app_config>\n").as_bytes())
}

/// The faults of a file, as they are told.
fn faults(input: &[u8]) -> Vec<String> {
    AppConfig::parse(input).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn r6_4_all_that_boincs_file_says_of_applications_is_read() {
    let (file, notes) = AppConfig::parse(FILE.as_bytes()).unwrap();
    assert_eq!(notes, []);
    let app = AppSettings {
        name: "mersenne".into(),
        max_concurrent: NonZeroU32::new(2),
        gpu_versions: Some(GpuUse { gpu: 0.5, cpu: 0.25 }),
        fraction_done_exact: true,
        report_results_immediately: true,
        line: 3,
    };
    let version = VersionSettings {
        app_name: "mersenne".into(),
        plan_class: "mt".into(),
        avg_ncpus: Some(3.0),
        ngpus: None,
        cmdline: Some("--threads 3 & more".into()),
        line: 10,
    };
    let whole = AppConfig {
        apps: vec![app.clone()],
        versions: vec![version.clone()],
        project_max_concurrent: NonZeroU32::new(4),
        report_results_immediately: true,
    };
    assert_eq!(file, whole);
    assert_eq!((file.app("mersenne"), file.app("totient")), (Some(&app), None));
    assert_eq!(file.version("mersenne", "mt").collect::<Vec<_>>(), [&version]);
    assert_eq!(file.version("mersenne", "").count(), 0);
    assert_eq!(AppConfig::parse(b"<app_config/>").unwrap().0, AppConfig::default());
}

#[test]
fn r6_4_what_limits_nothing_is_no_limit() {
    let (file, notes) =
        read("<app><name>a</name><max_concurrent>0</max_concurrent></app><project_max_concurrent>0</project_max_concurrent>")
            .unwrap();
    assert_eq!((file.app("a").unwrap().max_concurrent, file.project_max_concurrent), (None, None));
    assert_eq!(notes, []);
}

#[test]
fn r6_4_what_is_not_known_is_told_with_its_line_and_the_rest_holds() {
    let (file, notes) = read(
        "<app><name>a</name><max_concurent>1</max_concurent>\n<max_concurrent>3</max_concurrent></app>\n\
         <bogus><project_max_concurrent>9</project_max_concurrent></bogus>\n\
         <app><name>a</name>\n<gpu_versions><gpu_usage>1</gpu_usage></gpu_versions></app>",
    )
    .unwrap();
    assert_eq!((file.apps.len(), file.project_max_concurrent), (2, None));
    assert_eq!(file.app("a").unwrap().max_concurrent, None, "the last one counts, as in BOINC");
    let said: Vec<(usize, bool)> =
        notes.iter().map(|note| (note.line, note.what.contains("known are"))).collect();
    assert_eq!(said, [(2, true), (4, true), (6, false), (5, false)]);
    assert!(notes[0].what.starts_with("<max_concurent> is not known here"), "{}", notes[0]);
    assert!(notes[2].what.contains("both <gpu_usage> and <cpu_usage>") && notes[3].what.contains("twice"));
}

#[test]
fn r6_4_each_fault_of_a_file_is_told_with_its_line_and_the_file_says_nothing() {
    let table = [
        ("<app><max_concurrent>2</max_concurrent></app>", "line 2: <app> has no <name>"),
        ("<app_version/>", "line 2: <app_version> has no <app_name>"),
        (
            "\n<project_max_concurrent>two</project_max_concurrent>",
            "line 3: <project_max_concurrent> is \"two\"; expected a whole number, or 0 for no limit",
        ),
        (
            "<project_max_concurrent>-1</project_max_concurrent>",
            "line 2: <project_max_concurrent> is \"-1\"; expected a whole number, or 0 for no limit",
        ),
        (
            "<project_max_concurrent/>",
            "line 2: <project_max_concurrent> is \"\"; expected a whole number, or 0 for no limit",
        ),
        (
            "<project_max_concurrent>99999999999</project_max_concurrent>",
            "line 2: <project_max_concurrent> is \"99999999999\"; expected a whole number, or 0 for no limit",
        ),
        (
            "<report_results_immediately>yes</report_results_immediately>",
            "line 2: <report_results_immediately> is \"yes\"; expected 0, 1 or nothing, as in <x/>",
        ),
        (
            "<app_version><app_name>a</app_name>\n<avg_ncpus>NaN</avg_ncpus></app_version>",
            "line 3: <avg_ncpus> is \"NaN\"; expected a number that is not negative",
        ),
        (
            "<app_version><app_name>a</app_name>\n<ngpus>-.5</ngpus></app_version>",
            "line 3: <ngpus> is \"-.5\"; expected a number that is not negative",
        ),
        (
            "<project_max_concurrent>2<project_max_concurrent>\n",
            "line 2: <project_max_concurrent> is elements; expected a whole number, or 0 for no limit",
        ),
        ("<app><name>a</name>\n", "expected </app> before the end"),
        (
            "<app><name>&bomb;</name><max_concurrent>&bomb;</max_concurrent></app>",
            "<max_concurrent> is \"&bomb;\"",
        ),
    ];
    for (inside, expected) in table {
        let told = faults(format!("<app_config>\n{inside}</app_config>\n").as_bytes());
        assert!(told.iter().any(|fault| fault.contains(expected)), "{inside}: {told:?}");
    }
    let two =
        faults(b"<app_config>\n<app/>\n<project_max_concurrent>x</project_max_concurrent></app_config>");
    assert_eq!(two.len(), 2, "all at once: {two:?}");
}

#[test]
fn r6_4_a_file_that_is_no_text_or_would_grow_is_refused_at_once() {
    let bomb = "<!DOCTYPE app_config [\n<!ENTITY a \"aaaaaaaaaa\">\n<!ENTITY b \"&a;&a;&a;&a;\">\n]>\n";
    assert_eq!(faults((bomb.to_owned() + FILE).as_bytes())[0].split(':').next(), Some("line 1"));
    let latin = b"<app_config>\n<app><name>k\xe4se</name></app></app_config>";
    assert_eq!(faults(latin), ["line 2: it is no text in UTF-8"]);
    assert_eq!(faults(b"<app_config>\n\0</app_config>"), ["line 2: there is a NUL character in it"]);
    assert_eq!(faults(&[b' '; APP_CONFIG_MAX + 1]), ["line 1: the file is longer than 64 KiB"]);
    assert_eq!(faults(b""), ["line 1: expected <app_config>"]);
    assert_eq!(faults(b"<global_preferences/>"), ["line 1: expected <app_config>, not <global_preferences>"]);
    let deep = "<x>".repeat(5_000);
    assert!(read(&deep).is_err());
    let many = "<y/>".repeat(10_000);
    let (_, notes) = read(&many).unwrap();
    assert_eq!(notes.len(), REMARKS_MAX);
    assert!(!faults(format!("<app_config>{}</app_config>", "<app/>".repeat(5_000)).as_bytes()).is_empty());
}

#[test]
fn r6_4_what_is_commented_out_beside_the_files_element_says_nothing_and_nothing_else_may_stand_there() {
    let one = "<app_config><project_max_concurrent>1</project_max_concurrent></app_config>";
    let old = "<!-- <app_config></app_config> -->";
    let most = |text: String| AppConfig::parse(text.as_bytes()).unwrap().0.project_max_concurrent;
    for text in [
        format!("{old}\n{one}"),
        format!("<!-- put this <app_config> into the project's directory -->\n{one}"),
        format!("<?xml version=\"1.0\"?>\n<!-- it was\n{one} -->\n{one}\n{old}\n"),
        format!("\u{feff}{one}"),
    ] {
        assert_eq!(most(text.clone()), NonZeroU32::new(1), "{text}");
    }
    assert_eq!(faults(format!("{old}\n").as_bytes()), ["line 2: expected <app_config>"]);
    assert_eq!(faults(format!("<x>\n{one}</x>").as_bytes()), ["line 1: expected <app_config>, not <x>"]);
    let follows = "line 2: <app_config> follows </app_config>; all of the file belongs into one <app_config>";
    assert_eq!(faults(format!("<app_config/>\n{one}").as_bytes()), [follows]);
    assert_eq!(faults(format!("{one}\n<!-- {one}").as_bytes()), ["line 2: expected --> after <!--"]);
}

#[test]
fn r6_4_a_flag_that_is_empty_is_set_however_it_is_written() {
    for flag in ["<report_results_immediately/>", "<report_results_immediately></report_results_immediately>"]
    {
        assert!(read(flag).unwrap().0.report_results_immediately, "{flag}");
    }
    let off = read("<report_results_immediately>0</report_results_immediately>").unwrap().0;
    assert!(!off.report_results_immediately);
}

#[test]
fn r6_4_a_file_that_was_cut_anywhere_says_nothing() {
    for end in 0..FILE.len() - "</app_config>\n".len() {
        assert!(AppConfig::parse(&FILE.as_bytes()[..end]).is_err(), "{end}");
    }
}
