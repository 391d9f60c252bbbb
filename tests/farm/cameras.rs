//! Cameras, whose jobs never end.

use super::*;

const CAMERA: [&str; 7] = [
    "submit",
    "--source",
    "videotestsrc is-live=true ! video/x-raw,format=GRAY8,width=160,height=120,framerate=25/1",
    "--track",
    "30,20,64,28",
    "--results",
    "yard.jsonl",
];

/// Waits until so many frames are in a results file; its lines as far as they are whole.
fn frames(farm: &Farm, name: &str, count: usize) -> Vec<Value> {
    let deadline = Instant::now() + LONG;
    loop {
        let text = fs::read_to_string(farm.path(name)).unwrap_or_default();
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let lines: Vec<Value> = lines.map(|line| serde_json::from_str(line).unwrap()).collect();
        if lines.iter().filter(|line| line["type"] == "frame").count() >= count {
            return lines;
        }
        assert!(Instant::now() < deadline, "{name}: {text:.300}\n{}", farm.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_camera_moves_when_its_worker_dies_and_its_results_tell_of_the_gap() {
    let Some(farm) = Farm::start() else { return };
    farm.said(&CAMERA);
    let first = farm.worker("first", &[]);
    frames(&farm, "yard.jsonl", 60);
    let told = String::from_utf8(farm.output(&["jobs"]).stdout).unwrap();
    assert!(told.contains("running") && told.contains("first"), "{told}");
    let _second = farm.worker("second", &[]);
    first.kill();
    let lines = frames(&farm, "yard-2.jsonl", 5);
    assert_eq!((&lines[0]["type"], &lines[1]["type"]), (&"run".into(), &"gap".into()));
    assert_eq!((&lines[1]["frame"], &lines[1]["reason"]), (&0.into(), &"worker first was gone".into()));
    assert!(lines[1]["away_us"].as_u64().unwrap() > 0);
    // Asked again it is known, and asked to stop it stops.
    assert!(farm.said(&CAMERA).contains("known already: 1 running"));
    farm.said(&[&CAMERA[..], &["--replicas", "0"]].concat());
    assert!(all_are(&farm.jobs(), "cancelled"));
    let summary = || fs::read_to_string(farm.path("yard-2.jsonl")).unwrap().contains("\"type\":\"summary\"");
    farm.wait("it ends", summary);
    // Submitted again, it continues.
    assert!(farm.said(&CAMERA).contains("1 job submitted"));
    frames(&farm, "yard-3.jsonl", 5);
}
