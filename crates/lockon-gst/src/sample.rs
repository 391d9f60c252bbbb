//! Pictures in samples that applications give, to make templates of.

use std::path::Path;

use gst_video::VideoFormat;
use gst_video::prelude::*;

use lockon_core::colour::luma_of;
use lockon_core::error::{Error, Result};
use lockon_core::frame::{Plane, PlaneRef, Size};
use lockon_core::still;

use crate::source::{self, Mapper};
use crate::stills;

/// How long a conversion may take: elements are made for it.
const CONVERSION: gst::ClockTime = gst::ClockTime::from_seconds(10);

/// Luma of a sample's picture, and its alpha if it has that.
///
/// Luma is that of frames in its format. Formats that frames are not taken in are converted: YUV to 8 bits
/// without a change of range, RGB by OpenCV's rule, and so is an encoded picture (`image/png`, `image/jpeg`,
/// `image/bmp`), as those are that are read from files.
///
/// # Errors
/// `Usage` if it has no picture, or one that cannot be read or converted; those of [`stills::decode`].
pub fn planes(sample: &gst::Sample) -> Result<(Plane, Option<Plane>)> {
    let no = |what: &str| Error::Usage(format!("the sample {what}"));
    let (caps, buffer) = (sample.caps().ok_or_else(|| no("has no caps"))?, sample.buffer());
    let buffer = buffer.ok_or_else(|| no("has no buffer"))?;
    if caps.structure(0).is_some_and(|structure| structure.name().starts_with("image/")) {
        let bytes = buffer.map_readable().map_err(|_| no("cannot be mapped"))?;
        let still = stills::decode(&bytes, Path::new("the sample"), still::MAX_PIXELS)?;
        return Ok((still.luma, still.alpha));
    }
    let is_elsewhere =
        caps.features(0).is_some_and(|features| !features.is_equal(&gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY));
    if is_elsewhere {
        return Err(no(&format!(
            "is {caps}: only pictures in system memory are taken, so download it first"
        )));
    }
    let info = gst_video::VideoInfo::from_caps(caps)
        .map_err(|_| no(&format!("is {caps}: expected video/x-raw, image/png, image/jpeg or image/bmp")))?;
    // As frames are.
    if let Some((info, format)) = source::describe(caps).ok().filter(|_| !info.has_alpha()) {
        let picture =
            sample.buffer_owned().and_then(|buffer| Mapper::default().picture(buffer, &info, &format));
        let picture = picture.ok_or_else(|| no("is not laid out as its caps say"))?;
        return Ok((picture.plane(0).to_plane(), None));
    }
    let (target, has_alpha) = (taken_as(&info), info.has_alpha());
    let mut wanted = gst_video::VideoCapsBuilder::new().format(target);
    if info.is_yuv() {
        wanted = wanted.field("colorimetry", info.colorimetry().to_string());
    }
    let converted = gst_video::convert_sample(sample, &wanted.build(), Some(CONVERSION))
        .map_err(|error| no(&format!("is {caps}, which cannot be converted to {target}: {error}")))?;
    let of_caps = converted.caps().and_then(|caps| gst_video::VideoInfo::from_caps(caps).ok());
    let (Some(info), Some(buffer)) = (of_caps, converted.buffer()) else {
        return Err(no("was converted to nothing"));
    };
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(buffer, &info);
    let frame = frame.map_err(|_| no("cannot be mapped"))?;
    let size = Size::new(info.width() as usize, info.height() as usize);
    let of_pixels = |value: fn([u8; 4]) -> u8| {
        let pixels = rows(&frame, 0, 4 * size.width, size.height);
        let values = pixels.rows().flat_map(|row| row.as_chunks::<4>().0).map(|&pixel| value(pixel));
        Plane::from_vec(values.collect(), size)
    };
    Ok(match target {
        VideoFormat::Rgba => {
            (of_pixels(|[r, g, b, _]| luma_of([r, g, b])), has_alpha.then(|| of_pixels(|[.., alpha]| alpha)))
        }
        VideoFormat::Ayuv => (of_pixels(|[_, luma, ..]| luma), Some(of_pixels(|[alpha, ..]| alpha))),
        _ => (plane(&frame, 0), None),
    })
}

/// The format of 8 bits that keeps a picture's luma and alpha.
fn taken_as(info: &gst_video::VideoInfo) -> VideoFormat {
    match (info.is_rgb(), info.is_gray(), info.has_alpha()) {
        (true, ..) => VideoFormat::Rgba,
        (_, true, _) => VideoFormat::Gray8,
        (.., true) => VideoFormat::Ayuv,
        _ => VideoFormat::Y444,
    }
}

type Mapped<'a> = gst_video::VideoFrameRef<&'a gst::BufferRef>;

fn plane(frame: &Mapped<'_>, index: u32) -> Plane {
    rows(frame, index, frame.width() as usize, frame.height() as usize).to_plane()
}

fn rows<'a>(frame: &'a Mapped<'_>, index: u32, width: usize, height: usize) -> PlaneRef<'a> {
    let data = frame.plane_data(index).expect("the format has that plane");
    PlaneRef::new(data, Size::new(width, height), frame.plane_stride()[index as usize] as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size::new(6, 4);

    /// A sample of that format whose bytes count up.
    fn sample(format: VideoFormat, value: impl Fn(usize) -> u8) -> gst::Sample {
        gst::init().unwrap();
        let builder = gst_video::VideoInfo::builder(format, SIZE.width as u32, SIZE.height as u32);
        let info = builder.fps((25, 1)).build().unwrap();
        let buffer = gst::Buffer::from_slice((0..info.size()).map(value).collect::<Vec<_>>());
        gst::Sample::builder().buffer(&buffer).caps(&info.to_caps().unwrap()).build()
    }

    #[test]
    fn luma_is_taken_as_it_lies_and_without_padding() {
        for format in [VideoFormat::Gray8, VideoFormat::I420, VideoFormat::Nv12] {
            let (luma, alpha) = planes(&sample(format, |at| at as u8)).unwrap();
            // Rows are padded to four bytes.
            let expected: Vec<u8> = (0..4).flat_map(|y| (0..6).map(move |x| (y * 8 + x) as u8)).collect();
            assert_eq!((luma.data(), alpha), (&expected[..], None), "{format}");
        }
    }

    #[test]
    fn rgb_becomes_luma_as_pictures_from_files_do_and_alpha_is_given() {
        let (luma, alpha) = planes(&sample(VideoFormat::Bgra, |at| (at * 7) as u8)).unwrap();
        let pixel = |at: usize| [4 * at + 2, 4 * at + 1, 4 * at].map(|at| (at * 7) as u8);
        let expected: Vec<u8> = (0..24).map(|at| luma_of(pixel(at))).collect();
        assert_eq!(luma.data(), expected);
        assert_eq!(alpha.unwrap().data()[1], 49);
        let (_, alpha) = planes(&sample(VideoFormat::Rgb, |at| at as u8)).unwrap();
        assert_eq!(alpha, None);
    }

    #[test]
    fn yuv_of_other_layouts_and_depths_keeps_its_luma() {
        let (luma, _) =
            planes(&sample(VideoFormat::Yuy2, |at| if at % 2 == 0 { at as u8 } else { 128 })).unwrap();
        let expected: Vec<u8> = (0..4).flat_map(|y| (0..6).map(move |x| (y * 12 + 2 * x) as u8)).collect();
        assert_eq!(luma.data(), expected);
        // As of a frame: the upper byte, which no noise is added to.
        let (luma, _) =
            planes(&sample(VideoFormat::Gray16Le, |at| if at % 2 == 0 { 255 } else { 90 })).unwrap();
        assert!(luma.data().iter().all(|&luma| luma == 90));
        // A: 200, Y, U, V.
        let ayuv = sample(VideoFormat::Vuya, |at| if at % 4 == 3 { 200 } else { (at / 4) as u8 + 40 });
        let (luma, alpha) = planes(&ayuv).unwrap();
        assert_eq!(luma.data(), (40..64).collect::<Vec<u8>>());
        assert!(alpha.unwrap().data().iter().all(|&alpha| alpha == 200));
    }

    #[test]
    fn an_encoded_picture_is_read_as_a_file_is() {
        gst::init().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.png");
        let picture = Plane::from_vec((0..24).collect(), SIZE);
        still::save(&path, picture.as_ref()).unwrap();
        let buffer = gst::Buffer::from_slice(std::fs::read(&path).unwrap());
        let caps = gst::Caps::builder("image/png").build();
        let (luma, _) = planes(&gst::Sample::builder().buffer(&buffer).caps(&caps).build()).unwrap();
        assert_eq!(luma, picture);
    }

    #[test]
    fn what_is_no_picture_is_refused_with_its_reason() {
        gst::init().unwrap();
        let of = |caps: &str, bytes: usize| {
            let buffer = gst::Buffer::from_slice(vec![0; bytes]);
            let sample = gst::Sample::builder().buffer(&buffer).caps(&caps.parse().unwrap()).build();
            planes(&sample).unwrap_err().to_string()
        };
        assert!(planes(&gst::Sample::builder().build()).unwrap_err().to_string().contains("has no caps"));
        assert!(of("audio/x-raw", 4).contains("expected video/x-raw"));
        assert!(of("image/png", 4).contains("the sample"));
        let raw = "video/x-raw,format=I420,width=6,height=4,framerate=25/1";
        assert!(of(raw, 4).contains("not laid out as its caps say"));
        let elsewhere = "video/x-raw(memory:CUDAMemory),format=I420,width=6,height=4,framerate=25/1";
        assert!(of(elsewhere, 64).contains("download it first"));
    }
}
