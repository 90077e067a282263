//! Reads a page of metrics as strictly as OpenMetrics says, and no more leniently.

use std::collections::BTreeMap;

/// Samples by name and labels.
pub(crate) struct Page {
    pub(crate) kinds: BTreeMap<String, String>,
    pub(crate) samples: BTreeMap<String, f64>,
}

impl Page {
    /// Parses a page. Panics with the line that breaks the rules.
    pub(crate) fn read(text: &str) -> Self {
        let body = text.strip_suffix("# EOF\n").expect("it ends with its end");
        let mut page = Self { kinds: BTreeMap::new(), samples: BTreeMap::new() };
        let mut family = String::new();
        for line in body.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split_once(' ').expect("a help text").0.to_owned();
                assert!(is_name(&family), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect("a type");
                assert_eq!(name, family, "a type follows the help of its family");
                let new = page.kinds.insert(name.into(), kind.into());
                assert!(new.is_none(), "the family {name} is there twice");
            } else {
                page.sample(&family, line);
            }
        }
        page
    }

    fn sample(&mut self, family: &str, line: &str) {
        let (series, value) = line.rsplit_once(' ').expect("a name and a value");
        let name = series.split('{').next().unwrap_or(series);
        let suffix =
            name.strip_prefix(family).unwrap_or_else(|| panic!("{line} outside of its family {family}"));
        let allowed: &[&str] = match self.kinds[family].as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "histogram" => &["_bucket", "_sum", "_count"],
            other => panic!("{other} is no type of ours"),
        };
        assert!(allowed.contains(&suffix), "{line}");
        if let Some(labels) = series.strip_prefix(name).filter(|labels| !labels.is_empty()) {
            check_labels(labels);
        }
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        assert!(value >= 0.0, "{line}");
        assert!(self.samples.insert(series.into(), value).is_none(), "{series} is there twice");
    }

    pub(crate) fn at(&self, series: &str) -> f64 {
        *self.samples.get(series).unwrap_or_else(|| panic!("no {series}"))
    }

    /// Names of samples, without labels.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.samples.keys().map(|series| series.split('{').next().unwrap_or(series)).collect()
    }
}

fn is_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// `{name="value",…}` with backslash, quote and newline escaped.
fn check_labels(labels: &str) {
    let mut rest = labels.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect(labels);
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect(labels);
        assert!(is_name(name), "{labels}");
        let mut escaped = false;
        let end = value.find(|byte| {
            let ends = byte == '"' && !escaped;
            assert!(!escaped || matches!(byte, '"' | '\\' | 'n'), "{labels}");
            escaped = byte == '\\' && !escaped;
            ends
        });
        rest = &value[end.expect(labels) + 1..];
        rest = rest.strip_prefix(',').unwrap_or_else(|| {
            assert!(rest.is_empty(), "{labels}");
            rest
        });
    }
}
