//! Sound in an MPEG transport stream that GStreamer does not show.
//!
//! GStreamer's demuxer makes a pad only for the stream types that it knows. Whatever the type is, audio has
//! packets of its own (PES) with stream ids from 0xC0 to 0xDF (ISO/IEC 13818-1, table 2-22).

use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Bytes of a file that are examined: some seconds of video.
const LOOKED_AT: u64 = 4 << 20;
/// Number of packets in a row that must begin with the sync byte in a stream.
const IN_A_ROW: usize = 5;
const SYNC: u8 = 0x47;

/// True if the file is an MPEG transport stream that has audio, in packets of 188 or 192 bytes.
pub(super) fn has_audio_packets(path: &Path) -> bool {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LOOKED_AT).read_to_end(&mut bytes));
    read.is_ok() && has_audio(&bytes)
}

fn has_audio(bytes: &[u8]) -> bool {
    // Packets of 192 bytes begin with a time stamp of four.
    [(188, 0), (192, 4)].into_iter().any(|(size, before)| {
        let packets = || bytes.chunks_exact(size).map(|packet| &packet[before..]);
        packets().count() >= IN_A_ROW
            && packets().take(IN_A_ROW).all(|packet| packet[0] == SYNC)
            && packets().any(begins_audio)
    })
}

/// True if a transport packet holds the beginning of a packet of audio.
fn begins_audio(packet: &[u8]) -> bool {
    let begins = packet[0] == SYNC && packet[1] & 0x40 != 0;
    let payload = match packet[3] >> 4 & 0b11 {
        0b01 => Some(4),
        0b11 => Some(5 + usize::from(packet[4])),
        _ => None,
    };
    let payload = payload.filter(|_| begins).and_then(|at| packet.get(at..at + 4));
    payload.is_some_and(|it| it[..3] == [0, 0, 1] && (0xc0..=0xdf).contains(&it[3]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a stream of packets of that size, with one that begins a packet of that id.
    fn stream(size: usize, id: u8) -> Vec<u8> {
        let mut packets = vec![vec![0xff; size]; 7];
        for packet in &mut packets {
            let at = size - 188;
            packet[at..at + 4].copy_from_slice(&[SYNC, 0x01, 0x00, 0x10]);
        }
        let at = size - 188;
        // Two bytes of adaptation field in front.
        packets[6][at..at + 11].copy_from_slice(&[SYNC, 0x41, 0x00, 0x30, 2, 0, 0, 0, 0, 1, id]);
        packets.concat()
    }

    #[test]
    fn audio_packets_are_found_in_both_sizes() {
        for size in [188, 192] {
            assert!(has_audio(&stream(size, 0xc0)) && has_audio(&stream(size, 0xdf)), "{size}");
            assert!(!has_audio(&stream(size, 0xe0)) && !has_audio(&stream(size, 0xbd)), "{size}");
        }
        assert!(!has_audio(&[]) && !has_audio(&[SYNC; 188]) && !has_audio(&[0; 10_000]));
    }
}
