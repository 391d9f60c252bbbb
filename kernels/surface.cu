// The tracker's view of a picture on the device: windows resampled to grids, and the whole picture shrunken.
//
// A sample is the mean of the picture over a box about the sample's place, as wide as a step of the grid and
// at least one pixel: the sum of its pixels, each times the share of the box that lies in its column and the
// share that lies in its row, in 1/256, rounded half up. Outside the picture it sees the nearest pixel of the
// border. A grid that is turned is sampled, linearly, from an upright grid about it.
//
// Everything is an integer, so these are the bytes that the host makes (crates/lockon-core/src/tracker/
// sample.rs and camera.rs), which are the oracle in the tests of crates/lockon-cuda/src/surface.rs.
//
// Results go directly to page-locked memory of the host: a few dozen kB at a time, which a copy would only
// delay.
#include "shared.h"

// Threads of a block, and maximum grids of a launch: an argument has at most 4 KB.
constexpr int BLOCK = 256;
constexpr int MAX_GRIDS = 32;

// A grid of samples, as in `surface::Grid` of lockon-core.
struct Grid {
  // The component's first byte, bytes between its rows and between its pixels, and its size in pixels.
  unsigned long long pixels;
  int pitch;
  int step;
  int width;
  int height;
  // Where the samples lie: starts in 1/256 pixel, steps in 1/65536 pixel.
  long long x_start;
  long long x_step;
  long long y_start;
  long long y_step;
  // Samples on each side, and their layout in the output.
  int side;
  int groups;
  int across;
  int index;
  int at;
  // Samples on each side of the upright grid, 0 if the grid is not turned, and the place of this grid in it.
  int count;
  int right_x;
  int right_y;
  int below_x;
  int below_y;
};
static_assert(sizeof(Grid) == 96 && OFFSET(Grid, pitch) == 8 && OFFSET(Grid, x_start) == 24 &&
              OFFSET(Grid, side) == 56 && OFFSET(Grid, count) == 76);

struct Grids {
  Grid grid[MAX_GRIDS];
};
static_assert(sizeof(Grids) == 96 * MAX_GRIDS);

// The box of a sample along one axis.
struct Box {
  int first;        // the first pixel that it touches
  unsigned before;  // the part of that pixel in the box, in 1/65536 pixel
  unsigned width;   // in 1/256 pixel
};

__device__ __forceinline__ Box box_of(long long start, long long step, int index) {
  Box box;
  box.width = (unsigned)(max(step, 1LL << 16) >> 8);
  const long long middle = start + ((step * (2 * index + 1)) >> 9);
  const long long from = middle - box.width / 2;
  box.first = (int)(from >> 8);
  box.before = (unsigned)(((from >> 8) + 1) * 256 - from) * 256;
  return box;
}

// Share of the box that lies before the end of its pixel `k`, in 1/256.
__device__ __forceinline__ unsigned share_before_end(Box box, unsigned k) {
  return min((box.before + (k << 16)) / box.width, 256u);
}

__device__ __forceinline__ unsigned sample(const Grid& grid, int column, int row) {
  const Box x = box_of(grid.x_start, grid.x_step, column), y = box_of(grid.y_start, grid.y_step, row);
  const unsigned char* pixels = (const unsigned char*)grid.pixels;
  unsigned sum = 1u << 15;
  for (unsigned j = 0, above = 0; above < 256; ++j) {
    const unsigned below = share_before_end(y, j), weight = below - above;
    above = below;
    if (weight == 0) continue;
    const int line = min(max(y.first + (int)j, 0), grid.height - 1);
    const unsigned char* in_line = pixels + (long long)line * grid.pitch;
    unsigned of_line = 0;
    for (unsigned i = 0, left = 0; left < 256; ++i) {
      const unsigned right = share_before_end(x, i);
      const int at = min(max(x.first + (int)i, 0), grid.width - 1);
      of_line += (right - left) * in_line[at * grid.step];
      left = right;
    }
    sum += weight * of_line;
  }
  return sum >> 16;
}

__device__ __forceinline__ void sample_grid(const Grid& grid, unsigned char* samples) {
  const int place = blockIdx.x * BLOCK + threadIdx.x;
  if (place >= grid.side * grid.side) return;
  // Neighbours write neighbours: the samples of a group stand together.
  const int length = grid.side / grid.groups;
  const int row = place / grid.side, group = place % grid.side / length, in_group = place % length;
  const int column = in_group * grid.groups + group;
  unsigned value;
  if (grid.count == 0) {
    value = sample(grid, column, row);
  } else {
    const int middle = (grid.count - 1) << 15;
    const int x = 2 * column + 1 - grid.side, y = 2 * row + 1 - grid.side;
    const int u = middle + ((x * grid.right_x + y * grid.below_x) >> 1);
    const int v = middle + ((x * grid.right_y + y * grid.below_y) >> 1);
    const unsigned along = u >> 8 & 255, down = v >> 8 & 255;
    const int left = u >> 16, top = v >> 16;
    const unsigned above = (256 - along) * sample(grid, left, top) + along * sample(grid, left + 1, top);
    const unsigned below =
        (256 - along) * sample(grid, left, top + 1) + along * sample(grid, left + 1, top + 1);
    value = ((256 - down) * above + down * below + (1u << 15)) >> 16;
  }
  const int line = row * grid.side * grid.across + (group * grid.across + grid.index) * length;
  samples[grid.at + line + in_group] = (unsigned char)value;
}

// Writes the samples of grids. Grid (samples / BLOCK of the largest, grids), block BLOCK.
extern "C" __global__ void sample_grids(const Grids grids, unsigned char* samples) {
  sample_grid(grids.grid[blockIdx.y], samples);
}

// Writes the samples of any number of grids that lie in memory.
extern "C" __global__ void sample_listed_grids(const Grid* grids, unsigned char* samples) {
  sample_grid(grids[blockIdx.y], samples);
}

// Writes the means of squares of `factor` x `factor` pixels, rounded half up, `width` of them a row. Grid
// (width x height / BLOCK), block BLOCK.
extern "C" __global__ void shrink(const unsigned char* pixels, int pitch, int factor, int width, int height,
                                  unsigned char* means) {
  const int place = blockIdx.x * BLOCK + threadIdx.x;
  if (place >= width * height) return;
  const int x = place % width * factor, y = place / width * factor;
  unsigned sum = 0;
  for (int line = 0; line < factor; ++line) {
    const unsigned char* row = pixels + (long long)(y + line) * pitch + x;
    for (int i = 0; i < factor; ++i) sum += row[i];
  }
  const unsigned count = factor * factor;
  means[place] = (unsigned char)((sum + count / 2) / count);
}

// Writes the upper bytes of `width` x `height` samples of 16 bits. Grid (width / BLOCK, height), block BLOCK.
extern "C" __global__ void narrow(const unsigned char* samples, int pitch, unsigned char* upper, int upper_pitch,
                                  int width) {
  const int x = blockIdx.x * BLOCK + threadIdx.x, y = blockIdx.y;
  if (x < width) upper[(long long)y * upper_pitch + x] = samples[(long long)y * pitch + 2 * x + 1];
}
