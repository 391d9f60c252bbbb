//! Animated WebP, and whether the lossy frames of a file have the sizes that it declares for them.
//!
//! Frames are decoded by `image`, each as a picture of its own, and laid over each other here: its decoder of
//! animations ignores that a frame leaves nothing behind, or clears other pixels (image-webp 0.2.4).
//!
//! A frame's own header has a size too. The decoder allocates for that size, up to 400 MB, before it finds
//! that it is not the declared one. So headers are compared first (the container's specification, sections
//! "Extended File Format" and "Animation"; RFC 6386, 9.1).

use std::io::Cursor;

use image::codecs::webp::WebPDecoder;
use image::error::{DecodingError, ImageError, ImageFormatHint, ImageResult};
use image::imageops::{overlay, replace};
use image::{Delay, DynamicImage, Frame, Frames, ImageDecoder, ImageFormat, RgbaImage};

/// Bytes in front of the first chunk: `RIFF`, a length and `WEBP`.
const HEAD: usize = 12;
/// A chunk's name and length.
const CHUNK: usize = 8;
/// In an animation's chunk, the place, size, time and flags of its frame.
const PLACE: usize = 16;

/// The pictures of an animation of that size that was [checked](check), in order, each decoded when it is
/// requested. Each may be an error.
pub(super) fn frames(bytes: Vec<u8>, (width, height): (u32, u32)) -> Frames<'static> {
    let mut canvas = RgbaImage::new(width, height);
    // The place and size of the frame before, if it leaves nothing behind.
    let mut cleared = None;
    let mut at = HEAD;
    let mut next = move |bytes: &[u8]| {
        loop {
            let (name, length) = chunk(bytes, at)?;
            let payload = at + CHUNK;
            at = payload.saturating_add(even(length));
            if name == b"ANMF" {
                return Some(payload..payload.saturating_add(length));
            }
        }
    };
    let mut picture = move |payload: &[u8]| {
        let (head, chunks) = payload.split_first_chunk().ok_or_else(|| broken("a frame is cut off"))?;
        let frame = decoded(head, chunks, canvas.dimensions())?;
        if let Some(((x, y), (w, h))) = cleared.take() {
            replace(&mut canvas, &RgbaImage::new(w, h), x, y);
        }
        let three = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], 0]);
        let (x, y) = (2 * i64::from(three(0)), 2 * i64::from(three(3)));
        let (flags, milliseconds) = (head[PLACE - 1], three(12));
        let draw = if flags & 2 == 0 { overlay } else { replace };
        draw(&mut canvas, &frame, x, y);
        cleared = (flags & 1 == 1).then(|| ((x, y), frame.dimensions()));
        Ok(Frame::from_parts(canvas.clone(), 0, 0, Delay::from_numer_denom_ms(milliseconds, 1)))
    };
    Frames::new(Box::new(std::iter::from_fn(move || {
        let payload = next(&bytes)?;
        Some(picture(bytes.get(payload).unwrap_or_default()))
    })))
}

/// The frame of an animation, from the head and the chunks of its own chunk.
fn decoded(head: &[u8; PLACE], chunks: &[u8], canvas: (u32, u32)) -> ImageResult<RgbaImage> {
    let size = declared(head, 6).ok_or_else(|| broken("a frame has no size"))?;
    if size[0] > canvas.0 || size[1] > canvas.1 {
        return Err(broken("a frame is larger than the picture"));
    }
    // Transparency beside a lossy picture needs the head of an extended file.
    let extended = if chunks.starts_with(b"ALPH") {
        [&b"VP8X\x0A\0\0\0\x10\0\0\0"[..], &head[6..12]].concat()
    } else {
        Vec::new()
    };
    let length = (4 + extended.len() + chunks.len()) as u32;
    let file = [b"RIFF", &length.to_le_bytes()[..], b"WEBP", &extended, chunks].concat();
    let decoder = WebPDecoder::new(Cursor::new(file))?;
    if <[u32; 2]>::from(decoder.dimensions()) != size {
        return Err(broken("a frame has another size than is declared for it"));
    }
    Ok(DynamicImage::from_decoder(decoder)?.into_rgba8())
}

fn broken(what: &str) -> ImageError {
    ImageError::Decoding(DecodingError::new(ImageFormatHint::Exact(ImageFormat::WebP), what.to_owned()))
}

/// Refuses a file with a lossy frame of another size than the file declares for it.
///
/// # Errors
/// `Decoding`, with both sizes.
pub(super) fn check(bytes: &[u8]) -> Result<(), ImageError> {
    // Without this chunk the frame's own header declares the size.
    let Some((b"VP8X", length)) = chunk(bytes, HEAD) else { return Ok(()) };
    let Some(canvas) = declared(bytes, HEAD + CHUNK + 4) else { return Ok(()) };
    let mut at = HEAD + CHUNK + even(length);
    // The decoder's own count, so that the same chunks are looked at.
    let end = bytes
        .get(4..HEAD - 4)
        .and_then(|size| size.first_chunk())
        .map_or(0, |size| at.saturating_add((u32::from_le_bytes(*size) as usize).saturating_sub(HEAD)));
    let mut is_first = true;
    while let Some((name, length)) = chunk(bytes, at).filter(|_| at < end) {
        match name {
            b"VP8 " => fits(bytes, at + CHUNK, canvas)?,
            b"ANMF" => {
                animated(bytes, at)?;
                if std::mem::take(&mut is_first) {
                    unpadded(bytes, at)?;
                }
            }
            _ => {}
        }
        at = at.saturating_add(CHUNK + even(length));
    }
    Ok(())
}

/// Checks an animation's frames from the first one on, where the decoder expects them: without the byte that
/// follows a chunk of odd length.
fn unpadded(bytes: &[u8], mut at: usize) -> Result<(), ImageError> {
    while let Some((b"ANMF", length)) = chunk(bytes, at) {
        animated(bytes, at)?;
        at = at.saturating_add(CHUNK + length);
    }
    Ok(())
}

/// Checks the frame in an animation's chunk.
fn animated(bytes: &[u8], at: usize) -> Result<(), ImageError> {
    let (place, frame) = (at + CHUNK, at + CHUNK + PLACE);
    let (Some(size), Some((name, length))) = (declared(bytes, place + 6), chunk(bytes, frame)) else {
        return Ok(());
    };
    match name {
        b"VP8 " => fits(bytes, frame + CHUNK, size),
        // The decoder decodes as a lossy frame any chunk that follows.
        b"ALPH" => fits(bytes, frame.saturating_add(2 * CHUNK + even(length)), size),
        _ => Ok(()),
    }
}

/// Checks the lossy frame that begins there. What is none is left to the decoder.
fn fits(bytes: &[u8], at: usize, declared: [u32; 2]) -> Result<(), ImageError> {
    let Some([flags, _, _, 0x9D, 0x01, 0x2A, size @ ..]) =
        bytes.get(at..).and_then(|rest| rest.first_chunk::<10>())
    else {
        return Ok(());
    };
    // Only a key frame has a size; two bits of each side are for upscaling.
    let [a, b, c, d] = *size;
    let [width, height] = [[a, b], [c, d]].map(|side| u32::from(u16::from_le_bytes(side) & 0x3FFF));
    if flags & 1 == 1 || [width, height] == declared {
        return Ok(());
    }
    Err(broken(&format!("a frame of {width}x{height} where {}x{} is declared", declared[0], declared[1])))
}

/// The name and length of the chunk at that place.
fn chunk(bytes: &[u8], at: usize) -> Option<(&[u8; 4], usize)> {
    let (name, rest) = bytes.get(at..)?.split_first_chunk()?;
    Some((name, u32::from_le_bytes(*rest.first_chunk()?) as usize))
}

/// Width and height, each of three bytes and less by one.
fn declared(bytes: &[u8], at: usize) -> Option<[u32; 2]> {
    let [a, b, c, d, e, f] = *bytes.get(at..)?.first_chunk()?;
    Some([[a, b, c, 0], [d, e, f, 0]].map(|side| u32::from_le_bytes(side) + 1))
}

fn even(length: usize) -> usize {
    length.saturating_add(length & 1)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::{MAX_PIXELS, animation, decode, is_video};
    use super::*;
    use crate::error::Error;

    fn of(name: [u8; 4], parts: &[&[u8]]) -> Vec<u8> {
        let data = parts.concat();
        let mut chunk = [&name[..], &(data.len() as u32).to_le_bytes(), &data].concat();
        chunk.resize(CHUNK + even(data.len()), 0);
        chunk
    }

    fn file(flags: u8, canvas: [u32; 2], chunks: &[&[u8]]) -> Vec<u8> {
        let head = of(*b"VP8X", &[&[flags, 0, 0, 0], &sides(canvas)]);
        of(*b"RIFF", &[b"WEBP", &head, &chunks.concat()])
    }

    fn sides(size: [u32; 2]) -> Vec<u8> {
        size.iter().flat_map(|side| (side - 1).to_le_bytes()[..3].to_vec()).collect()
    }

    /// A lossy frame that claims that size, and has nothing else.
    fn frame(size: [u16; 2]) -> Vec<u8> {
        [&[0x10, 0, 0, 0x9D, 1, 0x2A][..], &size.map(u16::to_le_bytes).concat(), &[0; 8]].concat()
    }

    const HUGE: [u16; 2] = [16_383, 16_383];

    fn animated(size: [u32; 2], chunks: &[&[u8]], rest: &[u8]) -> Vec<u8> {
        of(*b"ANMF", &[&[0; 6], &sides(size), &[100, 0, 0, 0], &chunks.concat(), rest])
    }

    #[test]
    fn a_lossy_frame_larger_than_its_canvas_is_refused_before_memory_is_taken() {
        let huge = of(*b"VP8 ", &[&frame(HUGE)]);
        let still = file(0, [16, 16], &[&huge]);
        let error = decode(&still, Path::new("a.webp"), MAX_PIXELS).unwrap_err();
        assert!(matches!(error, Error::Picture { .. }), "{error}");
        assert!(error.to_string().contains("a frame of 16383x16383 where 16x16 is declared"), "{error}");

        let small = of(*b"VP8 ", &[&frame([16, 16])]);
        let alpha = of(*b"ALPH", &[&[0; 7]]);
        let anim = of(*b"ANIM", &[&[0; 6]]);
        // A chunk of odd length: the decoder takes what follows without the byte between.
        let mut odd = animated([16, 16], &[&small], &[0]);
        odd.pop();
        let second = animated([16, 16], &[&huge], &[]);
        for chunks in [
            [&anim[..], &animated([16, 16], &[&huge], &[])].concat(),
            [&anim[..], &animated([16, 16], &[&alpha, &huge], &[])].concat(),
            [&anim[..], &animated([16, 16], &[&small], &[]), &second].concat(),
            [&anim[..], &odd, &second].concat(),
        ] {
            let bytes = file(2, [16, 16], &[&chunks]);
            assert!(is_video(&bytes));
            let error = animation(bytes, Path::new("a.webp"), MAX_PIXELS).err().unwrap().to_string();
            assert!(error.contains("where 16x16 is declared"), "{error}");
        }
    }

    #[test]
    fn lossy_pictures_and_animations_of_their_declared_sizes_are_decoded() {
        use base64::prelude::{BASE64_STANDARD, Engine};
        check(&file(0, [16, 16], &[&of(*b"VP8 ", &[&frame([16, 16])])])).unwrap();
        // 24 x 16, then two smaller parts, by ImageMagick.
        let bytes = BASE64_STANDARD.decode(include_str!("animated.webp.base64").trim()).unwrap();
        assert!(is_video(&bytes));
        let first = decode(&bytes, Path::new("a.webp"), MAX_PIXELS).unwrap();
        assert_eq!((first.luma.size().width, first.luma.size().height), (24, 16));
        let shown = animation(bytes, Path::new("a.webp"), MAX_PIXELS).unwrap();
        assert_eq!(shown.map(Result::unwrap).count(), 3);
    }

    #[test]
    fn a_frame_that_leaves_nothing_behind_leaves_white() {
        use base64::prelude::{BASE64_STANDARD, Engine};
        let mut bytes = BASE64_STANDARD.decode(include_str!("animated.webp.base64").trim()).unwrap();
        let is_frame = |at: &usize| bytes[*at..].starts_with(b"ANMF");
        let frames: Vec<_> = (0..bytes.len()).filter(is_frame).map(|at| at + CHUNK).collect();
        // Left and top are halved; then width, height, time, and the flag.
        let place = |at: usize| {
            let [w, h] = declared(&bytes, at + 6).unwrap().map(|side| side as usize);
            (2 * usize::from(bytes[at]), 2 * usize::from(bytes[at + 3]), w, h)
        };
        let (second, third) = (place(frames[1]), place(frames[2]));
        let has = |(left, top, w, h): (usize, usize, usize, usize), x: usize, y: usize| {
            (left..left + w).contains(&x) && (top..top + h).contains(&y)
        };
        bytes[frames[1] + PLACE - 1] |= 1;
        let shown = animation(bytes, Path::new("a.webp"), MAX_PIXELS).unwrap();
        let last = shown.map(Result::unwrap).last().unwrap().still.into_scene().0;
        let mut checked = 0;
        for (x, y) in (0..16).flat_map(|y| (0..24).map(move |x| (x, y))) {
            if has(second, x, y) && !has(third, x, y) {
                assert_eq!(last.luma.as_ref().row(y)[x], 255, "({x}, {y})");
                checked += 1;
            }
        }
        assert!(checked > 0, "{second:?} {third:?}");
    }
}
