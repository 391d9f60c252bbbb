//! Action signals: orders of an application while frames pass.

use gst::glib;
use gst::glib::subclass::Signal;
use gst::prelude::*;
use gst::subclass::prelude::*;
use lockon_core::change::Change;
use lockon_core::control::Control;
use lockon_core::distinctiveness;
use lockon_core::error::{Error, Result};
use lockon_core::frame::Rect;
use lockon_core::message::Dialect;
use lockon_core::orders::Reply;
use lockon_core::template::Template;
use lockon_gst::sample;

use super::super::{CAT, Lockon as Element};
use super::Lockon;

/// Returns the action signals. Signals about tracks have an element and whole numbers as arguments, signals
/// about templates an element, a name and perhaps a sample.
pub(super) fn signals() -> Vec<Signal> {
    let numbers = |count: usize| vec![u32::static_type(); count];
    let action = |name, count| Signal::builder(name).param_types(numbers(count)).run_last().action();
    vec![
        action("follow", 4)
            .return_type::<u32>()
            .class_handler(|args| {
                let asked = ask(args, |run, n| run.follow(rect(n), None));
                Some(asked.and_then(|reply| reply.id()).unwrap_or(0).to_value())
            })
            .build(),
        action("correct", 5)
            .return_type::<bool>()
            .class_handler(|args| {
                Some(ask(args, |run, n| run.correct(n[0], rect(&n[1..]), None)).is_some().to_value())
            })
            .build(),
        action("forget", 1)
            .return_type::<bool>()
            .class_handler(|args| Some(ask(args, |run, n| run.forget(n[0])).is_some().to_value()))
            .build(),
        action("clear", 0)
            .return_type::<bool>()
            .class_handler(|args| Some(ask(args, |run, _| run.clear()).is_some().to_value()))
            .build(),
        Signal::builder("add-template")
            .param_types([String::static_type(), gst::Sample::static_type()])
            .return_type::<bool>()
            .run_last()
            .action()
            .class_handler(|args| {
                let sample = args[2].get::<Option<gst::Sample>>().expect(OF_TYPE);
                let is_taken = search_otherwise(args, |name| {
                    let sample = sample.ok_or_else(|| Error::Usage("there is no sample".into()))?;
                    let (luma, alpha) = sample::planes(&sample)?;
                    let template = Template::new(name, luma, alpha.as_ref())?;
                    for doubt in distinctiveness::Measures::of(&template, None).doubts() {
                        tracing::warn!("template {name:?} {doubt}");
                    }
                    Ok(Change::adding(template))
                });
                Some(is_taken.to_value())
            })
            .build(),
        Signal::builder("remove-template")
            .param_types([String::static_type()])
            .return_type::<bool>()
            .run_last()
            .action()
            .class_handler(|args| Some(search_otherwise(args, |name| Ok(Change::removing(name))).to_value()))
            .build(),
    ]
}

const OF_TYPE: &str = "GObject has checked the type";

/// Asks for a change of the template with a name. Returns true if the change was accepted.
fn search_otherwise(args: &[glib::Value], change: impl FnOnce(&str) -> Result<Change>) -> bool {
    let this = args[0].get::<Element>().expect("a signal's first argument is its element");
    let this = this.imp();
    let name = args[1].get::<Option<String>>().expect(OF_TYPE).filter(|name| !name.is_empty());
    let asked = match name {
        Some(name) => this.logging(|| change(&name)).and_then(|change| this.ask_of_template(&name, change)),
        None => Err(Error::Usage("a template needs a name".into())),
    };
    if let Err(error) = &asked {
        this.refuse(&error.told(Dialect::Properties));
    }
    asked.is_ok()
}

fn rect(numbers: &[u32]) -> Rect {
    let number = |index: usize| numbers[index] as usize;
    Rect::new(number(0), number(1), number(2), number(3))
}

/// Gives an order to the current run. A refused order is reported on the bus.
fn ask(args: &[glib::Value], order: impl FnOnce(&Control, &[u32]) -> Result<Reply>) -> Option<Reply> {
    let element = args[0].get::<Element>().expect("a signal's first argument is its element");
    let number = |value: &glib::Value| value.get::<u32>().expect("GObject has checked the type");
    let numbers: Vec<u32> = args[1..].iter().map(number).collect();
    let this = element.imp();
    let control = this.control.lock().clone();
    match order(&control, &numbers) {
        Ok(reply) => Some(reply),
        Err(error) => {
            this.refuse(&error.to_string());
            None
        }
    }
}

impl Lockon {
    /// Warns that an order given while frames pass was not carried out.
    pub(in crate::lockon) fn refuse(&self, text: &str) {
        gst::warning!(CAT, imp = self, "{text}");
        gst::element_imp_warning!(self, gst::LibraryError::Settings, ("{text}"));
    }
}
