// Draws boxes, labels and trails into the planes of a picture: the steps of a list that the host makes
// (crates/lockon-core/src/overlay/drawing.rs).
//
//   under = (under * (255 - opacity) + over * opacity + 127) / 255, rounded down
//
// for each step that touches a sample, in the list's order. A sample is a byte of luma, Cb or Cr. It stands
// for 2^x_shift x 2^y_shift pixels, and a step touches it if one of these lies in the step's area: a chroma
// sample is mixed whole, as on the host.
//
// Oracle: lockon_core::overlay::Canvas, in pictures_painted_on_the_device_are_the_hosts
// (crates/lockon-cuda/src/overlay/tests.rs). The tests there repeat these loops on the host: change both
// together.
#include "shared.h"

// Samples of a block, one a thread: a warp is a row.
constexpr int TILE_X = 32;
constexpr int TILE_Y = 8;

// Columns from left and rows from top; `right` and `bottom` are just beyond the area.
struct Area {
  int left, top, right, bottom;
};

struct Step {
  Area area;  // in pixels of the picture
  unsigned char over[3];
  unsigned char opacity;
  int components;  // how many of luma, Cb and Cr are mixed
  // A letter has its own opacities: where they begin in the coverage, and how many pixels of the picture,
  // each way, share one. 0 for all other steps.
  unsigned first;
  int zoom;
};
static_assert(sizeof(Step) == 32 && OFFSET(Step, over) == 16 && OFFSET(Step, opacity) == 19 &&
                  OFFSET(Step, components) == 20 && OFFSET(Step, first) == 24 && OFFSET(Step, zoom) == 28,
              "as the host fills it");

// The samples of one component to paint.
struct Samples {
  unsigned char* origin;  // that of column 0 in row 0
  unsigned long long pitch;
  Area area;  // in samples
  int apart;  // bytes from one to the next in a row
  int x_shift, y_shift;
  int component;  // 0 is luma, then Cb and Cr
};
static_assert(sizeof(Samples) == 48 && OFFSET(Samples, pitch) == 8 && OFFSET(Samples, area) == 16 &&
                  OFFSET(Samples, apart) == 32 && OFFSET(Samples, component) == 44,
              "as the host fills it");

// The pixels that an area of samples stands for.
__device__ __forceinline__ Area pixels_of(const Samples& samples, int left, int top, int right, int bottom) {
  return {left << samples.x_shift, top << samples.y_shift, right << samples.x_shift, bottom << samples.y_shift};
}

__device__ __forceinline__ bool touch(const Area& a, const Area& b) {
  return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
}

// The opacity of a step in a pixel of its area.
__device__ __forceinline__ int opacity_at(const Step& step, const unsigned char* coverage, int x, int y) {
  if (step.zoom == 0) return step.opacity;
  const int row = (step.area.right - step.area.left) / step.zoom;
  return coverage[step.first + (y - step.area.top) / step.zoom * row + (x - step.area.left) / step.zoom];
}

// Does `count` steps in the samples of one component: block TILE_X x TILE_Y, grid (columns / TILE_X, rows /
// TILE_Y) of the samples' area, rounded up. Letters are steps of luma, whose samples are pixels.
//
// A block looks at as many steps at once as it has threads, each thread at one: those that do not touch the
// block's tile cost its threads nothing more.
extern "C" __global__ void overlay(const Step* steps, int count, const unsigned char* coverage, Samples samples) {
  // A bit for each step: set if it touches the tile.
  __shared__ unsigned touching[TILE_Y];
  const int left = samples.area.left + int(blockIdx.x) * TILE_X, top = samples.area.top + int(blockIdx.y) * TILE_Y;
  const int x = left + int(threadIdx.x), y = top + int(threadIdx.y);
  const Area tile = pixels_of(samples, left, top, left + TILE_X, top + TILE_Y);
  const Area pixels = pixels_of(samples, x, y, x + 1, y + 1);
  const bool is_inside = x < samples.area.right && y < samples.area.bottom;
  unsigned char* const sample = samples.origin + size_t(y) * samples.pitch + size_t(x) * samples.apart;
  const int before = is_inside ? *sample : 0;
  int under = before;
  // Threads without a sample look at their steps, too.
  for (int start = 0; start < count; start += TILE_X * TILE_Y) {
    const int index = start + int(threadIdx.y) * TILE_X + int(threadIdx.x);
    const bool touches =
        index < count && steps[index].components > samples.component && touch(steps[index].area, tile);
    const unsigned bits = __ballot_sync(~0u, touches);
    if (threadIdx.x == 0) touching[threadIdx.y] = bits;
    // Every warp has written its bits.
    __syncthreads();
    for (int word = 0; word < TILE_Y; word++) {
      for (unsigned rest = touching[word]; rest != 0; rest &= rest - 1) {
        const Step& step = steps[start + word * TILE_X + __ffs(int(rest)) - 1];
        if (!is_inside || !touch(step.area, pixels)) continue;
        const int opacity = opacity_at(step, coverage, x, y), over = step.over[samples.component];
        under = (under * (255 - opacity) + over * opacity + 127) / 255;
      }
    }
    // Every warp has read all bits.
    __syncthreads();
  }
  if (under != before) *sample = static_cast<unsigned char>(under);
}
