//! Runs that repeat the orders in a results file.

use super::*;

const SOURCE: &str = "videotestsrc num-buffers=9 pattern=smpte ! video/x-raw,format=GRAY8,width=321,height=243 ! appsink name=frames";

#[test]
fn orders_that_another_json_writer_wrote_are_carried_out_and_late_ones_reported() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let compact = concat!(
        "{\"type\":\"run\",\"version\":\"0.1.0\"}\n",
        "{\"type\":\"control\",\"frame\":5,\"order\":\"follow\",\"id\":1,\"box\":\"100,80,41,43\"}\n",
        "{\"type\":\"control\",\"frame\":30,\"order\":\"forget\",\"id\":1}\n",
    );
    std::fs::write(place.path("compact.jsonl"), compact).unwrap();
    let spaced = compact.replace(':', ": ").replace(",\"", " ,\"").replace('\n', "\r\n");
    std::fs::write(place.path("spaced.jsonl"), format!("\u{feff}{spaced}")).unwrap();
    let results = |name: &str| {
        let out = format!("{name}-out.jsonl");
        let orders = format!("{name}.jsonl");
        let args = ["run", "--source", SOURCE, "--control", &orders, "--results", &out];
        let said = stderr(&succeeds(place.lockon_args(&args)));
        let late = "order for frame 30 not carried out (forget track 1): the last of 9 frames was 8";
        assert_eq!(said.matches(late).count(), 1, "{said}");
        timeless(&place.read(&out))
    };
    let lines = results("spaced");
    assert_eq!(lines, results("compact"));
    let followed =
        lines.iter().filter(|line| line["tracks"].as_array().is_some_and(|tracks| tracks.len() == 1));
    assert_eq!(followed.filter(|line| line["type"] == "frame").count(), 4, "{lines:?}");
}

#[test]
fn a_second_track_of_one_number_is_refused() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let follow = |frame: u64, id: u64, x: u64| {
        format!(
            "{{\"type\":\"control\",\"frame\":{frame},\"order\":\"follow\",\"id\":{id},\"box\":\"{x},80,41,43\"}}\n"
        )
    };
    let orders = [follow(1, 2, 100), follow(2, 2, 10), follow(3, 1, 10), follow(4, 3, 10)].concat();
    std::fs::write(place.path("twice.jsonl"), format!("{{\"type\":\"run\"}}\n{orders}")).unwrap();
    let args = [
        "run",
        "--source",
        SOURCE,
        "--control",
        "twice.jsonl",
        "--track",
        "200,20,41,43",
        "--results",
        "a.jsonl",
    ];
    succeeds(place.lockon_args(&args));
    let records = place.records("a.jsonl");
    let refused: Vec<_> =
        records.iter().filter(|record| record["type"] == "control").map(|order| &order["refused"]).collect();
    assert_eq!(refused.len(), 4);
    assert!(refused[0].is_null() && refused[3].is_null(), "{refused:?}");
    for (refused, id) in [(refused[1], 2), (refused[2], 1)] {
        assert!(
            refused.as_str().unwrap().contains(&format!("there is or was a track {id} already")),
            "{refused}"
        );
    }
    let last = *frames(&records).last().unwrap();
    let ids: Vec<_> =
        last["tracks"].as_array().unwrap().iter().map(|track| track["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, [1, 2, 3]);
}

#[test]
fn a_file_of_several_runs_repeats_the_last_one_and_a_message_has_their_number() {
    let place = Place { dir: tempfile::tempdir().unwrap() };
    let follow = |frame: u64| {
        let order = format!(r#""frame":{frame},"order":"follow","id":1,"box":"100,80,41,43""#);
        std::fs::write(
            place.path("orders.jsonl"),
            format!("{{\"type\":\"run\"}}\n{{\"type\":\"control\",{order}}}\n"),
        )
        .unwrap();
    };
    let run = |control: &str, words: &[&str]| {
        stderr(&succeeds(
            place.lockon_args(&[&["run", "--source", SOURCE, "--control", control], words].concat()),
        ))
    };
    for frame in [2, 6] {
        follow(frame);
        let said = run("orders.jsonl", &["--results", "both.jsonl", "--append"]);
        assert!(!said.contains("runs are in this file"), "{said}");
    }
    let said = run("both.jsonl", &["--results", "again.jsonl"]);
    let expected = "2 runs are in this file: the orders of the last one are repeated (1), those of the earlier ones are ignored (1)";
    assert_eq!(said.matches(expected).count(), 1, "{said}");
    let orders = |file: &str| -> Vec<u64> {
        let records = place.records(file);
        let orders = records.iter().filter(|record| record["type"] == "control");
        orders.map(|record| record["frame"].as_u64().unwrap()).collect()
    };
    assert_eq!((orders("both.jsonl"), orders("again.jsonl")), (vec![2, 6], vec![6]));
}
