//! Three servers; one of them is lost.

use std::io::Read;

use super::*;

/// Three servers that keep three copies of all.
struct Cluster {
    servers: Vec<Option<Process>>,
    monitors: Vec<u16>,
    farm: Farm,
}

impl Cluster {
    fn start() -> Option<Self> {
        let mut farm = Farm::away(&[])?;
        let three = || [free_port(), free_port(), free_port()];
        let (ports, routes, monitors) = (three(), three(), three());
        let address = |port: &u16| format!("nats://127.0.0.1:{port}");
        let all_routes = routes.each_ref().map(address).join(",");
        farm.address = ports.each_ref().map(address).join(",");
        let server = |n: usize| {
            let mut server = Command::new("nats-server");
            server.args(["-js", "-a", "127.0.0.1", "-p", &ports[n].to_string(), "-n", &format!("n{n}")]);
            server.args(["-m", &monitors[n].to_string(), "--cluster_name", "farm", "--routes", &all_routes]);
            server.args(["--cluster", &address(&routes[n]), "-sd"]).arg(farm.path(&format!("store{n}")));
            Some(Process(server.stderr(Stdio::null()).spawn().unwrap()))
        };
        let servers = (0..3).map(server).collect();
        let cluster = Self { servers, monitors: monitors.into(), farm };
        // Before that it would have too few servers for three copies.
        let has_all = |found: &Value| {
            let others = found["meta_cluster"]["replicas"].as_array().map_or(&[][..], Vec::as_slice);
            others.len() == 2 && others.iter().all(|other| other["current"] == true)
        };
        cluster.farm.wait("the servers find each other", || {
            (0..3).any(|n| cluster.about(n, "").as_ref().is_some_and(has_all))
        });
        Some(cluster)
    }

    /// A server's report about its streams.
    fn about(&self, n: usize, query: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.monitors[n])).ok()?;
        write!(stream, "GET /jsz{query} HTTP/1.0\r\n\r\n").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }

    /// Each stream, how many copies it has, and who leads it.
    fn streams(&self) -> Vec<(String, u64, String)> {
        let about = self.about(0, "?streams=true&config=true").unwrap();
        let streams = about["account_details"][0]["stream_detail"].as_array().unwrap().clone();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |stream: &Value| {
            let copies = stream["config"]["num_replicas"].as_u64().unwrap();
            (text(&stream["name"]), copies, text(&stream["cluster"]["leader"]))
        };
        streams.iter().map(of).collect()
    }
}

#[test]
fn a_cluster_that_loses_a_server_in_the_middle_of_jobs_loses_none_of_them() {
    let Some(mut cluster) = Cluster::start() else { return };
    let videos = cluster.farm.videos(8);
    // But for its first line, which names the video.
    let expected = alone(&cluster.farm, &["v0.mp4", "--track", "310,120,64,128"], "alone.jsonl");
    let slow = Slow::new();
    cluster.farm.said(&slow.submitted(&[]));
    let streams = cluster.streams();
    assert_eq!(streams.len(), 4, "{streams:?}");
    assert!(streams.iter().all(|(_, copies, _)| *copies == 3), "{streams:?}");
    let _workers = [cluster.farm.worker("one", &[]), cluster.farm.worker("two", &[])];
    cluster.farm.until("it runs", |jobs| all_are(jobs, "running"));
    let mut words = vec!["submit", "--track", "310,120,64,128", "--results", "{stem}.jsonl"];
    words.extend(videos.iter().map(String::as_str));
    cluster.farm.said(&words);
    // The worst one to lose.
    let leader = streams.iter().find(|(name, ..)| name == "lockon-main-queue").unwrap().2.clone();
    let leader: usize = leader.strip_prefix('n').unwrap().parse().unwrap();
    cluster.servers[leader].take().unwrap().kill();
    slow.go_on();
    cluster.farm.until("all are done", |jobs| jobs.len() == 9 && all_are(jobs, "done"));
    for video in &videos {
        let results = cluster.farm.path(&video.replace("mp4", "jsonl"));
        assert_eq!(timeless(&results).split_off(1), expected[1..], "{video}");
    }
    assert_eq!(
        timeless(&cluster.farm.path("slow.jsonl")),
        alone(&cluster.farm, &slow.words(), "alone.jsonl")
    );
    assert!(cluster.farm.leftovers().is_empty(), "{:?}", cluster.farm.leftovers());
}
