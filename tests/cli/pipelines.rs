//! Pipelines by which others watch.

use std::process::Command;

use crate::util::{program, root};

fn lockon(dir: &std::path::Path, words: &[&str]) -> String {
    let output = Command::new(program())
        .current_dir(dir)
        .args(["run", "--backend", "cpu", "--no-progress"])
        .args(words)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_stream_for_browsers_has_all_frames_in_its_segments() {
    let dir = tempfile::tempdir().unwrap();
    let clip = root().join("examples/media/cars.mp4");
    let sink = format!("@{}", root().join("pipelines/hls-out.launch").display());
    lockon(dir.path(), &[clip.to_str().unwrap(), "--track", "310,120,64,64", "--sink", &sink]);
    let list = std::fs::read_to_string(dir.path().join("live.m3u8")).unwrap();
    assert!(list.starts_with("#EXTM3U") && list.contains("#EXT-X-ENDLIST"), "{list}");
    let segments: Vec<_> = list.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).collect();
    assert!(segments.len() >= 2, "{list}");
    let frames = segments.iter().map(|segment| {
        let results = lockon(dir.path(), &[segment, "--threshold", "mean:5:1", "--results", "-"]);
        results.lines().filter(|line| line.starts_with("{\"type\":\"frame\"")).count()
    });
    assert_eq!(frames.sum::<usize>(), 60);
}
