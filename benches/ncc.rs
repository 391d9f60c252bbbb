//! Times the CPU backend's NCC, after checking its answer against the reference.
//!
//! The input stays in the cache between repeats, as it does when a frame has just been decoded. Threads:
//! those of rayon's global pool (`RAYON_NUM_THREADS`), and one.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lockon::backend::cpu::ncc::{Matcher, Planner};
use lockon::config::Limits;
use lockon::frame::{Rect, Size};
use lockon::reference;
use lockon::template::{Bank, Template};

fn ncc(c: &mut Criterion) {
    let mut planner = Planner::new();
    let all = rayon::current_num_threads();
    let mut group = c.benchmark_group("ncc");
    group.sample_size(20);
    for (frame, template) in [
        (Size::new(768, 576), Size::new(64, 128)),
        (Size::new(1920, 1080), Size::new(64, 64)),
        (Size::new(192, 384), Size::new(64, 128)),
        (Size::new(192, 192), Size::new(128, 128)),
    ] {
        let plane = reference::picture(frame);
        let (x, y) = ((frame.width - template.width) / 3, (frame.height - template.height) / 3);
        let place = Rect::new(x, y, template.width, template.height);
        let luma = plane.as_ref().crop(place).to_plane();
        let cut_out = Template::new("cut", luma, None).expect("it is not flat");
        let bank = Arc::new(Bank::new(vec![cut_out]).expect("it is not empty"));
        let (roi, limits) = (Rect::whole(frame), Limits::default());
        for threads in if all > 1 { vec![1, all] } else { vec![1] } {
            let mut matcher = Matcher::new(&mut planner, bank.clone(), frame, threads);
            let mut matches = Vec::new();
            matcher.run(plane.as_ref(), roi, &limits, &mut matches).expect("there is memory");
            // The reference's whole map would take minutes; around the place that is known, it is the whole
            // answer.
            let near = Rect::new(place.x - 2, place.y - 2, place.w + 4, place.h + 4);
            let expected = reference::ncc::matches(plane.as_ref(), &bank, near, &limits);
            assert_eq!(matches, expected, "{template} in {frame}");
            group.throughput(Throughput::Elements(1));
            let name = format!("{frame}/{template}");
            group.bench_function(BenchmarkId::new(name, format!("{threads} threads")), |b| {
                b.iter(|| {
                    matcher
                        .run(black_box(plane.as_ref()), roi, &limits, &mut matches)
                        .expect("there is memory");
                });
            });
        }
    }
    let bank = {
        let plane = reference::picture(Size::new(128, 128));
        Arc::new(
            Bank::new(vec![Template::new("t", plane, None).expect("it is not flat")]).expect("not empty"),
        )
    };
    group.bench_function("new matcher/192x192/128x128", |b| {
        b.iter(|| Matcher::new(&mut planner, bank.clone(), Size::new(192, 192), 1));
    });
    group.finish();
}

criterion_group!(benches, ncc);
criterion_main!(benches);
