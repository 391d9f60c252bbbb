//! Outputs in folders that do not exist.

use super::*;

#[test]
fn each_kind_of_output_is_refused_in_a_folder_that_does_not_exist() {
    let place = Place::new();
    // The missing video shows that the folders are checked before any video is opened.
    let run = "run no.mp4 --track 50,40,40,40 --no-progress";
    let mut commands: Vec<_> =
        ["-o none/a.mkv", "--results none/a.jsonl", "--results none/a.csv", "--results none/a.mot.txt"]
            .into_iter()
            .chain(["--results none/a.cvat.xml", "--results none/a.coco.json", "--report none/a.html"])
            .chain(["--results none/a.jsonl --append --rotate day", "--cut none/{name}-{n}.mp4"])
            .map(|output| format!("{run} {output}"))
            .collect();
    commands.push("match ball.png ball.png -o none/a.png".into());
    commands.push("threshold ball.png --method mean:31:5 -o none/a.png".into());
    commands.push("pick no.mp4 --box 1,2,30,40 -o none/a.png".into());
    for command in commands {
        let out = place.lockon(&command);
        assert_eq!(stderr(&out), "error: folder none does not exist (fix: mkdir -p none)\n", "{command}");
        assert_eq!((out.status.code(), out.stdout.is_empty()), (Some(2), true), "{command}");
        assert!(!place.path("none").exists(), "{command}");
    }
}

#[test]
fn all_folders_that_are_missing_are_named_once_before_the_first_video() {
    let place = Place::new();
    std::fs::copy(place.path("ball.mp4"), place.path("two.mp4")).unwrap();
    let run = "run ball.mp4 --track 50,40,40,40 --no-progress";
    let out =
        place.lockon(&format!("{run} -o a/x.mkv --results b/x.jsonl --report a/x.html --results c.jsonl"));
    fails(&out, 2, "2 folders for outputs do not exist (fix: mkdir -p a b)");
    assert!(!place.path("c.jsonl").exists());
    // Words in braces make no folders either.
    let several = "run ball.mp4 two.mp4 --track 50,40,40,40 --no-progress --results {stem}/x.jsonl";
    let out = place.lockon(several);
    fails(&out, 2, "2 folders for outputs do not exist (fix: mkdir -p ball two)");
    for name in ["ball", "two"] {
        std::fs::create_dir(place.path(name)).unwrap();
    }
    succeeds(place.lockon(several));
    assert!(place.path("ball/x.jsonl").is_file() && place.path("two/x.jsonl").is_file());
    let out = place.lockon(&format!("{run} -o {{date}}/x.mkv"));
    fails(&out, 2, "does not exist (fix: mkdir -p 20");
    // The job may be for another machine.
    succeeds(place.lockon(&format!("{run} -o a/x.mkv --print-job")));
    fails(&place.lockon(&format!("{run} -o ball.mp4/x.mkv")), 2, "ball.mp4 is not a folder");
}
