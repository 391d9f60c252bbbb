//! The results: a table that is printed line by line, and the report in JSON.

use anyhow::Result;
use serde::Serialize;

use lockon_core::config::{Kernel, Limits, ThresholdSpec};
use lockon_core::frame::Size;
use lockon_core::template::Template;

use super::plan::Work;
use super::scene::SearchCase;
use super::{print, say};

/// How long something took, each time in microseconds, in rising order.
pub(super) type Micros = Vec<f64>;

/// One measurement.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// `start`, `ncc`, `threshold`, `objects`, `fft`, `resample`, `upload`, `readback`, `ring`.
    pub(super) op: &'static str,
    /// As `--kernel` takes it, several joined by `+`; `auto` is what `run` would use.
    pub(super) kernel: String,
    /// The kernel that `auto` took, of the CUDA backend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) taken: Option<String>,
    /// Width and height; of the window, where one is searched.
    pub(super) frame: [usize; 2],
    /// Width and height, of the largest member of a bank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) template: Option<[usize; 2]>,
    /// The searched scene, see `Scene`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scene: Option<&'static str>,
    /// Members.
    pub(super) bank: usize,
    /// Maximum matches of a template, if not only the best is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_matches: Option<usize>,
    /// Their minimum score.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) block: Option<usize>,
    /// Slots of the ring.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) depth: Option<usize>,
    /// The mask is read back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) mask: Option<bool>,
    /// The part of the median that the host spends on submitting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) submit_us: Option<f64>,
    pub(super) median_us: f64,
    p90_us: f64,
    /// The median where every launch begins when the one before has ended, if launches may begin sooner.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) one_by_one_us: Option<f64>,
    /// Products of NCC in a second: positions times template pixels, whatever was really multiplied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) products_per_s: Option<f64>,
    /// Bytes that have to be moved at least, read once and written once, in a second.
    pub(super) bytes_per_s: f64,
}

impl Row {
    pub(super) fn new(op: &'static str, kernel: String, frame: Size, bytes: usize, micros: &Micros) -> Self {
        let median_us = at(micros, 0.5);
        Self {
            op,
            kernel,
            taken: None,
            frame: [frame.width, frame.height],
            template: None,
            scene: None,
            bank: 1,
            max_matches: None,
            min_score: None,
            method: None,
            block: None,
            depth: None,
            mask: None,
            submit_us: None,
            median_us,
            p90_us: at(micros, 0.9),
            one_by_one_us: None,
            products_per_s: None,
            bytes_per_s: bytes as f64 / median_us * 1e6,
        }
    }
}

/// By what a row was measured, see [`Row`].
pub(super) struct Name {
    pub(super) kernel: String,
    pub(super) taken: Option<String>,
}

/// How long a row took.
#[derive(Clone, Copy)]
pub(super) struct Times<'a> {
    pub(super) micros: &'a Micros,
    pub(super) one_by_one: Option<&'a Micros>,
}

impl<'a> From<&'a Micros> for Times<'a> {
    fn from(micros: &'a Micros) -> Self {
        Self { micros, one_by_one: None }
    }
}

impl Name {
    /// The name of a kernel of the CUDA backend.
    pub(super) fn of(asked: Option<Kernel>, taken: Kernel) -> Self {
        match asked {
            Some(asked) => asked.to_string().as_str().into(),
            None => Self { kernel: "auto".into(), taken: Some(taken.to_string()) },
        }
    }
}

impl From<&str> for Name {
    fn from(kernel: &str) -> Self {
        Self { kernel: kernel.into(), taken: None }
    }
}

/// The quantile `share` of the times.
pub(super) fn at(micros: &Micros, share: f64) -> f64 {
    micros[((micros.len() - 1) as f64 * share).round() as usize]
}

/// The whole report.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) driver: Option<String>,
    /// The version of lockon.
    pub(super) version: &'static str,
    /// The commit it was built from, where that is known.
    pub(super) commit: &'static str,
    /// Seconds since 1970.
    pub(super) date: u64,
    /// How the times were taken.
    pub(super) timing: &'static str,
    pub(super) rows: Vec<Row>,
}

impl Work {
    pub(super) fn header(&self, device: &str) -> Result<()> {
        if self.prints_table {
            print(&format!(
                "{device}\n{:<10} {:<21} {:>9} {:>9} {:>16} {:>12} {:>10} {:>13} {:>9} {:>8}\n",
                "op", "kernel", "scene", "frame", "of", "median", "p90", "one by one", "Gprod/s", "GB/s"
            ))?;
        } else {
            say(&format!("measuring {device}"));
        }
        Ok(())
    }

    pub(super) fn add(&mut self, row: Row) -> Result<()> {
        if self.prints_table {
            let of = match (&row.template, row.method, row.block, row.depth) {
                (_, _, _, Some(depth)) => {
                    format!("depth {depth}{}", if row.mask == Some(true) { " + mask" } else { "" })
                }
                (Some([w, h]), ..) if row.bank > 1 => format!("{} of {w}x{h}", row.bank),
                (Some([w, h]), ..) if let Some(most) = row.max_matches => format!("{w}x{h}, best {most}"),
                (Some([w, h]), ..) => format!("{w}x{h}"),
                (None, Some(method), Some(block), _) => format!("{method} {block}"),
                _ => String::new(),
            };
            let products = row.products_per_s.map_or(String::new(), |rate| format!("{:.0}", rate / 1e9));
            print(&format!(
                "{:<10} {:<21} {:>9} {:>9} {:>16} {:>9.1} us {:>7.1} us {:>13} {:>9} {:>8.1}\n",
                row.op,
                row.taken.as_ref().map_or(row.kernel.clone(), |taken| format!("{}: {taken}", row.kernel)),
                row.scene.unwrap_or_default(),
                format!("{}x{}", row.frame[0], row.frame[1]),
                of,
                row.median_us,
                row.p90_us,
                row.one_by_one_us.map_or(String::new(), |micros| format!("{micros:.1} us")),
                products,
                row.bytes_per_s / 1e9,
            ))?;
        }
        self.rows.push(row);
        Ok(())
    }

    pub(super) fn add_search(&mut self, name: Name, search: &SearchCase, times: Times<'_>) -> Result<()> {
        let SearchCase { bank, limits, .. } = search;
        let window = search.window.size();
        let mut row = Row::new("ncc", name.kernel, window, window.area(), times.micros);
        row.one_by_one_us = times.one_by_one.map(|micros| at(micros, 0.5));
        (row.taken, row.scene) = (name.taken, Some(search.scene.name()));
        let products =
            |template: &Template| template.size().positions_in(window).area() * template.size().area();
        let all: usize = bank.members().iter().map(products).sum();
        row.products_per_s = Some(all as f64 / row.median_us * 1e6);
        let size = bank.members()[0].size();
        (row.template, row.bank) = (Some([size.width, size.height]), bank.members().len());
        if *limits != Limits::default() {
            (row.max_matches, row.min_score) = (Some(limits.max_matches), Some(limits.min_score));
        }
        self.add(row)
    }

    pub(super) fn add_threshold(
        &mut self,
        name: Name,
        frame: Size,
        spec: &ThresholdSpec,
        times: Times<'_>,
    ) -> Result<()> {
        let mut row = Row::new("threshold", name.kernel, frame, 2 * frame.area(), times.micros);
        row.one_by_one_us = times.one_by_one.map(|micros| at(micros, 0.5));
        row.taken = name.taken;
        (row.method, row.block) = (Some(spec.method.name()), Some(spec.block.width));
        self.add(row)
    }
}
