//! Defines how a device uses filters: this is the host's own code behind the device's interface.

use std::any::Any;
use std::sync::Arc;

use super::eye::Eye;
use crate::frame::correlator::{Correlator, FilterState, Lesson, PlacedFilter, Query, Spectrum};
use crate::locks::Ranked;
use crate::surface::Surface;

/// Filters that stay on the host, for pictures of any device that samples grids. Every device must give the
/// same answers.
#[derive(Clone)]
pub struct HostCorrelator(Arc<Ranked<Eye, 110>>);

impl Default for HostCorrelator {
    fn default() -> Self {
        Self(Arc::new(Ranked::new(Eye::new())))
    }
}

/// A filter, with the sample that it looked at last.
struct HostFilter {
    correlator: HostCorrelator,
    state: Ranked<(FilterState, Spectrum), 115>,
}

impl HostFilter {
    fn of(filter: &dyn PlacedFilter) -> &Self {
        (filter as &dyn Any).downcast_ref().expect("a filter that was placed here")
    }
}

impl Correlator for HostCorrelator {
    fn sees(&self, _: &(dyn Surface + 'static)) -> bool {
        true
    }

    fn place(&self, filter: &FilterState) -> Option<Box<dyn PlacedFilter>> {
        let state = Ranked::new((filter.clone(), Spectrum::zero()));
        Some(Box::new(HostFilter { correlator: self.clone(), state }))
    }

    fn respond(&self, surface: &(dyn Surface + 'static), queries: &mut [Query<'_>]) {
        let mut eye = self.0.lock();
        for query in queries {
            let mut state = HostFilter::of(query.filter).state.lock();
            let sample = eye.answer(surface, query, &state.0);
            if query.is_learnt {
                state.1.clone_from(sample);
            }
        }
    }

    fn learn(&self, _: &(dyn Surface + 'static), lessons: &[Lesson<'_>]) {
        let mut eye = self.0.lock();
        for lesson in lessons {
            let (state, sample) = &mut *HostFilter::of(lesson.filter).state.lock();
            eye.learn_lesson(lesson, state, sample);
        }
    }
}

impl PlacedFilter for HostFilter {
    fn correlator(&self) -> &dyn Correlator {
        &self.correlator
    }

    fn keep(&mut self) {
        self.state.lock().0.keep();
    }

    fn go_back(&mut self) {
        self.state.lock().0.go_back();
    }

    fn fetch(&self) -> FilterState {
        self.state.lock().0.clone()
    }
}
