//! From text to a pipeline in state NULL.

use crossbeam_channel::RecvTimeoutError;
use gst::glib;
use gst::prelude::*;

use super::missing::missing_element;
use super::{Launch, Property, init};
use lockon_core::control::{Control, STOP_CHECK};
use lockon_core::error::{Error, Result};

impl Launch {
    /// The pipeline, in state NULL, with all properties set.
    ///
    /// # Errors
    /// `MissingElement` if an element is not installed, `Launch` if GStreamer does not accept the text or a
    /// property.
    pub fn build(&self) -> Result<gst::Pipeline> {
        init()?;
        let mut context = gst::ParseContext::new();
        let built = gst::parse::launch_full(&self.text, Some(&mut context), gst::ParseFlags::FATAL_ERRORS);
        let element = built.map_err(|e| self.not_built(&e, &context))?;
        // A text of one element alone gives that element, not a pipeline.
        let pipeline = element.downcast::<gst::Pipeline>().or_else(|element| {
            let pipeline = gst::Pipeline::new();
            pipeline.add(&element).map_err(|e| self.fault(e.to_string()))?;
            Ok::<_, Error>(pipeline)
        })?;
        for property in &self.properties {
            self.apply(&pipeline, property)?;
        }
        Ok(pipeline)
    }

    /// As [`Self::build`], but ends when the run is stopped: for text of thousands of elements GStreamer
    /// takes minutes, and cannot be interrupted. The thread that builds is left behind then, and drops what
    /// it has built.
    ///
    /// # Errors
    /// As [`Self::build`], and `Stopped`.
    pub fn build_under(&self, control: &Control) -> Result<gst::Pipeline> {
        let (sender, built) = crossbeam_channel::bounded(1);
        let launch = self.clone();
        let build = move || drop(sender.send(launch.build()));
        std::thread::Builder::new()
            .name("lockon-build".into())
            .spawn(build)
            .map_err(|error| self.fault(format!("no thread can be started to build it: {error}")))?;
        loop {
            control.check()?;
            match built.recv_timeout(STOP_CHECK) {
                Ok(built) => return built,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.fault("the thread that built it panicked"));
                }
            }
        }
    }

    fn not_built(&self, error: &glib::Error, context: &gst::ParseContext) -> Error {
        let missing = context.missing_elements();
        // The list also has elements that exist but were given a property that they have not.
        match missing.first().filter(|_| error.matches(gst::ParseError::NoSuchElement)) {
            Some(missing) => missing_element(missing).unwrap_or_else(|| {
                self.fault(format!("there is no element {:?}, is it misspelt?", missing.as_str()))
            }),
            None => self.fault(error.message()),
        }
    }

    fn apply(
        &self,
        pipeline: &gst::Pipeline,
        Property { element: name, name: property, value }: &Property,
    ) -> Result<()> {
        let element = self.element(pipeline, name)?;
        let spec = element
            .find_property(property)
            .filter(|spec| spec.flags().contains(glib::ParamFlags::WRITABLE))
            .ok_or_else(|| self.fault(format!("element {name:?} has no property {property:?} to set")))?;
        // Strings are taken as they are: deserialising would undo quotes and turn a file named NULL into
        // nothing.
        let value = if spec.value_type() == glib::Type::STRING {
            value.to_value()
        } else {
            glib::Value::deserialize_with_pspec(value, &spec)
                .map_err(|_| self.fault(format!("{property} of element {name:?} cannot be {value:?}")))?
        };
        element.set_property_from_value(property, &value);
        Ok(())
    }
}
