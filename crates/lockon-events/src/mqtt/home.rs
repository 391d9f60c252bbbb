//! Announces a run to Home Assistant (MQTT discovery).

use std::sync::Arc;

use lockon_core::config::Direction;
use lockon_core::text;
use serde_json::json;
use sha2::{Digest, Sha256};

/// The first level of the topics at which Home Assistant looks for announcements.
const PREFIX: &str = "homeassistant";

/// Maximum length of a topic of an announcement, in bytes. Ours are shorter.
const MAX_TOPIC: usize = 2048;

/// Maximum characters of the name of a zone or a line in a topic.
const MAX_NAME: usize = 64;

/// A run in Home Assistant.
pub(crate) struct Home {
    /// The video's name.
    pub(crate) source: String,
    pub(crate) zones: Vec<Arc<str>>,
    pub(crate) lines: Vec<Arc<str>>,
    pub(crate) kinds: Vec<&'static str>,
}

impl Home {
    /// Returns the topics and payloads of a sensor that counts tracks, of one for each zone that is on while
    /// a track is in it, of two for each line that count crossings, and of an entity of the events.
    pub(super) fn announcements(&self, topic: &str) -> Vec<(String, String)> {
        let node = node(topic);
        let device = json!({
            "identifiers": [node],
            "name": format!("lockon {}", self.source),
            "sw_version": env!("CARGO_PKG_VERSION"),
        });
        let announce = |kind: &str, object: &str, name: &str, state: &str, more: serde_json::Value| {
            let mut config = json!({
                "name": name,
                "unique_id": format!("{node}_{object}"),
                "state_topic": format!("{topic}/{state}"),
                "availability_topic": format!("{topic}/status"),
                "device": device,
            });
            if let (Some(config), serde_json::Value::Object(more)) = (config.as_object_mut(), more) {
                config.extend(more);
            }
            (format!("{PREFIX}/{kind}/{node}/{object}/config"), config.to_string())
        };
        let mut all = vec![
            announce(
                "sensor",
                "tracks",
                "Tracks",
                "state",
                json!({"value_template": "{{ value_json.tracks }}", "state_class": "measurement"}),
            ),
            announce(
                "event",
                "events",
                "Events",
                "events",
                json!({
                    "event_types": self.kinds,
                    "value_template": "{{ dict(value_json, event_type=value_json.type) | to_json }}",
                }),
            ),
        ];
        for (index, zone) in self.zones.iter().enumerate() {
            let place = json!(zone);
            all.push(announce(
                "binary_sensor",
                &format!("zone_{}_{}", index + 1, short(zone)),
                zone,
                "state",
                json!({
                    "device_class": "occupancy",
                    "value_template": format!("{{{{ 'ON' if value_json.zones[{place}] > 0 else 'OFF' }}}}"),
                }),
            ));
        }
        for (index, line) in self.lines.iter().enumerate() {
            let place = json!(line);
            all.extend(Direction::ALL.map(Direction::name).map(|direction| {
                announce(
                    "sensor",
                    &format!("line_{}_{direction}_{}", index + 1, short(line)),
                    &format!("{line} {direction}"),
                    "state",
                    json!({
                        "value_template": format!("{{{{ value_json.lines[{place}]['{direction}'] }}}}"),
                        "state_class": "total_increasing",
                    }),
                )
            }));
        }
        all
    }
}

/// Returns the name under which a run with that topic is announced.
fn node(topic: &str) -> String {
    format!("lockon_{}", named(topic))
}

/// Returns the filter for the topics of everything that is announced of a run.
pub(super) fn filter(topic: &str) -> String {
    format!("{PREFIX}/+/{}/+/config", node(topic))
}

/// True if `found` is a topic that [`filter`] finds.
pub(super) fn is_announcement(found: &str, topic: &str) -> bool {
    let parts = || found.split('/');
    found.len() <= MAX_TOPIC
        && parts().count() == 5
        && parts().zip([PREFIX, "", &node(topic), "", "config"]).all(|(part, is)| is.is_empty() || part == is)
}

/// Returns a topic as a part of one. No two topics give the same: where characters are replaced, eight digits
/// of a hash follow.
fn named(topic: &str) -> String {
    let plain = plain(topic);
    if plain == topic {
        return plain;
    }
    format!("{plain}_{}", text::hexadecimal(&Sha256::digest(topic)[..4]))
}

/// Replaces by `_` all characters that Home Assistant does not accept in a part of a topic: it accepts
/// letters, digits, `_` and `-`.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect()
}

/// As [`plain`], at most [`MAX_NAME`] characters.
fn short(text: &str) -> String {
    plain(&text.chars().take(MAX_NAME).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_assistant_is_told_of_topics_that_there_are() {
        let home = Home {
            source: "yard".into(),
            zones: vec!["front \"door\"".into()],
            lines: vec!["gate".into()],
            kinds: vec!["appeared", "gone"],
        };
        let told = home.announcements("cams/yard 1");
        let node = format!("lockon_{}", named("cams/yard 1"));
        let topics: Vec<_> = told.iter().map(|(topic, _)| &**topic).collect();
        assert_eq!(
            topics,
            [
                format!("homeassistant/sensor/{node}/tracks/config"),
                format!("homeassistant/event/{node}/events/config"),
                format!("homeassistant/binary_sensor/{node}/zone_1_front__door_/config"),
                format!("homeassistant/sensor/{node}/line_1_in_gate/config"),
                format!("homeassistant/sensor/{node}/line_1_out_gate/config"),
            ]
        );
        // Topics that become the same name belong to two runs.
        assert!(
            node.starts_with("lockon_cams_yard_1_") && node != format!("lockon_{}", named("cams/yard/1"))
        );
        assert_eq!(named("cams_yard_1"), "cams_yard_1");
        let configs: Vec<serde_json::Value> =
            told.iter().map(|(_, config)| serde_json::from_str(config).unwrap()).collect();
        for config in &configs {
            assert_eq!(config["availability_topic"], "cams/yard 1/status");
            assert_eq!(config["device"]["identifiers"][0], *node);
        }
        assert_eq!(configs[1]["event_types"], json!(["appeared", "gone"]));
        assert_eq!(
            configs[2]["value_template"],
            "{{ 'ON' if value_json.zones[\"front \\\"door\\\"\"] > 0 else 'OFF' }}"
        );
        assert_eq!(configs[4]["value_template"], "{{ value_json.lines[\"gate\"]['out'] }}");
    }
}
