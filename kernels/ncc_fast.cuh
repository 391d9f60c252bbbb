// Shared by the NCC kernels for tensor cores: how suspects are found, and their exact scores.
//
// No score map is written. Bounds of the scores in f32 select the suspects: the positions that *may* be the
// best one, or a peak. The bounds lose none of these. Then the scores of suspects and their neighbours are
// computed by the exact formula.
//
//   score = (ST - S t1 / n) / sqrt(W),   W = (n SS - S S)(n t2 - t1 t1) / (n n)
//
// An integer b near S t1 / n stands for it, so that ST - b is exact. A window or template that is not flat
// has n SS - S S >= n - 1, so 1 / sqrt(W) is 2 at most. The score of a flat window is exactly 0. MARGIN is
// for the roundings to f32. How far b is off, and how much is cut off from W, stands in each kernel where it
// computes bounds.
//
// Oracle: that of ncc_mma.cu and ncc_wgmma.cu, which include this.
#pragma once

#include "ncc.cuh"
#include "packed.cuh"
#include "window_sums.cuh"

constexpr float MARGIN = 1.0f / (1 << 18);

// Positions in a row of a tile.
constexpr int TILE_X = 128;

// Sums of products that go into a map: of `width` times `height` positions, the first at (left, top) of the
// frame, for a template of w times h. The frame's rows start at multiples of 16 bytes.
struct Region {
  Image frame;
  int left, top;
  int width, height;
  int w, h;
};
static_assert(sizeof(Region) == 48 && OFFSET(Region, left) == 24 && OFFSET(Region, w) == 40, "as the host fills it");

// Keeps the order of f32 among unsigned numbers; 0 lies below them all.
__device__ __forceinline__ unsigned ordered(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float from_ordered(unsigned key) {
  return key == 0 ? -4.0f : __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// The hardware's, off by 2^-22.9 of it at most (PTX ISA, `rsqrt.approx`).
__device__ __forceinline__ float inverse_root(float value) {
  asm("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}

// a / b for numbers below 2^20, b not 0. A division of integers takes longer.
__device__ __forceinline__ int quotient(int a, int b) { return int(__fdividef(float(a) + 0.5f, float(b))); }

// The sum over a warp, in all its lanes.
__device__ __forceinline__ unsigned add_lanes(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(ALL_LANES, value);
#else
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
  return value;
#endif
}

// value + that of the lane STEP below, if there is one: the shuffle's predicate says so.
template <int STEP>
__device__ __forceinline__ unsigned add_below(unsigned value) {
  asm volatile(
      "{\n"
      ".reg .pred is_there;\n"
      ".reg .b32 other;\n"
      "shfl.sync.up.b32 other|is_there, %0, %1, 0, 0xffffffff;\n"
      "@is_there add.u32 %0, %0, other;\n"
      "}"
      : "+r"(value)
      : "n"(STEP));
  return value;
}

// Each becomes the sum over the lanes up to its own.
template <int STEP = 1, class... Unsigned>
__device__ __forceinline__ void add_lanes_before(Unsigned&... values) {
  if constexpr (STEP < 32) {
    ((values = add_below<STEP>(values)), ...);
    add_lanes_before<2 * STEP>(values...);
  }
}

// A lower and an upper bound of a score.
struct Bounds {
  float least, most;
};

// Sums by which nine scores are computed: S, SS and ST of each.
constexpr int EXACT_SUMS = 27;

// Each call halves the numbers of a lane: of two lanes that differ in bit STEP, one keeps the sums of
// `values` up to STEP, the other the rest. In the end each lane has the sum over the warp of one number, its
// own.
template <int STEP>
__device__ __forceinline__ unsigned sum_of_lane(unsigned (&values)[2 * STEP], int lane) {
  const bool is_upper = lane & STEP;
  unsigned kept[STEP];
#pragma unroll
  for (int i = 0; i < STEP; i++) {
    const unsigned sent = is_upper ? values[i] : values[i + STEP];
    kept[i] = (is_upper ? values[i + STEP] : values[i]) + __shfl_xor_sync(ALL_LANES, sent, STEP);
  }
  if constexpr (STEP == 1) {
    return kept[0];
  } else {
    return sum_of_lane<STEP / 2>(kept, lane);
  }
}

// A thread's part of them. Positions are numbered row by row; the suspect is number 4.
struct NineWindows {
  unsigned st[9] = {};
  // The sums of all rows of three windows, one below the other, and for each of the nine windows the part of
  // these sums that it lacks.
  unsigned s[3] = {}, ss[3] = {};
  unsigned less_s[9] = {}, less_ss[9] = {};

  // Adds four columns of image row j: of the windows to the left they begin at the first byte of low and
  // high, of those to the right two bytes later; only bytes in `mask` count. pattern: what the windows above,
  // at and below the suspect, of h rows, have of the template there, zeros where they do not have the row.
  __device__ __forceinline__ void add(unsigned low, unsigned high, unsigned mask, const unsigned (&pattern)[3], int j, int h) {
    unsigned pixels[3];
#pragma unroll
    for (int dx = 0; dx < 3; dx++) {
      pixels[dx] = __funnelshift_r(low, high, 8 * dx) & mask;
#pragma unroll
      for (int i = 0; i < 3; i++) st[3 * i + dx] = dot4(pixels[dx], pattern[i], st[3 * i + dx]);
      s[dx] = dot4(pixels[dx], 0x01010101u, s[dx]);
      ss[dx] = dot4(pixels[dx], pixels[dx], ss[dx]);
    }
    // Not a row of all windows.
    if (j < 1 || j > h - 2) {
#pragma unroll
      for (int i = 0; i < 3; i++) {
        if (unsigned(j + 1 - i) < unsigned(h)) continue;
#pragma unroll
        for (int dx = 0; dx < 3; dx++) {
          less_s[3 * i + dx] = dot4(pixels[dx], 0x01010101u, less_s[3 * i + dx]);
          less_ss[3 * i + dx] = dot4(pixels[dx], pixels[dx], less_ss[3 * i + dx]);
        }
      }
    }
  }

  // Sums over the warp: each lane gets the sum of its number, S before SS before ST.
  __device__ __forceinline__ unsigned of_warp(int lane) const {
    unsigned values[32] = {};
#pragma unroll
    for (int k = 0; k < 9; k++) {
      values[k] = s[k % 3] - less_s[k];
      values[9 + k] = ss[k % 3] - less_ss[k];
      values[18 + k] = st[k];
    }
    return sum_of_lane<16>(values, lane);
  }
};

// Where the windows around a suspect lie: in an image of rows of `pitch` words of four pixels, from pixel (x,
// y) on, which is the one above and to the left of the suspect's first.
struct Around {
  const unsigned* words;
  int pitch, rows;
  int x, y;

  // The suspect's first pixel is (x, y) of an image of rows of `bytes`, whole words.
  __device__ __forceinline__ Around(const unsigned char* pixels, int bytes, int rows, int x, int y)
      : words(reinterpret_cast<const unsigned*>(pixels)), pitch(bytes / 4), rows(rows), x(x - 1), y(y - 1) {}
};

// Adds a warp's part of rows first <= j < end, up to h + 1, of the image, row 0 being the suspect's first.
// words: those of the template (`pack_template`). A lane starts the loads of AT_ONCE rows before it uses the
// first.
template <int AT_ONCE>
__device__ __forceinline__ void add_rows(NineWindows& windows, const Around& image, int w, int h, int first, int end,
                                         const unsigned* words) {
  const int lane = threadIdx.x % 32;
  const int columns = (w + 3) / 4, at_once = quotient(32, columns), lane_row = quotient(lane, columns);
  const int column = lane - lane_row * columns;
  if (lane_row >= at_once) return;
  const unsigned row_mask = 0xffffffffu >> (32 - 8 * min(w - 4 * column, 4));
  // Counted in words: frames of 2^31 bytes or more have less than 2^31 of these. Neighbours outside the frame
  // do not count, whatever is read for them.
  const int shift = (image.x & 3) * 8, last = image.pitch * image.rows - 1;
  end = min(end, h + 1);
#pragma unroll 1
  for (int top = first + lane_row; top < end; top += AT_ONCE * at_once) {
    unsigned pixels[AT_ONCE][3], pattern[AT_ONCE][3];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      const int j = k == 0 ? top : min(top + k * at_once, h);
      const int at = min(max(image.y + 1 + j, 0), image.rows - 1) * image.pitch + (image.x >> 2) + column;
      // The image's row j meets the template's row j + 1 at the position above.
      const unsigned* below = words + (j + 1) * columns + column;
#pragma unroll
      for (int i = 0; i < 3; i++) {
        pixels[k][i] = image.words[min(max(at + i, 0), last)];
        pattern[k][i] = __ldg(below - i * columns);
      }
    }
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++) {
      const int j = top + k * at_once;
      const unsigned mask = k == 0 || j < end ? row_mask : 0;
      windows.add(__funnelshift_r(pixels[k][0], pixels[k][1], shift), __funnelshift_r(pixels[k][1], pixels[k][2], shift),
                  mask, pattern[k], j, h);
    }
  }
}

// Appends (x, y) to the candidates if it scores min_score or more and precedes its neighbours in the tie
// order. By one warp: nine lanes from `first` on have the scores `here` of the position's neighbours, and of
// itself in the middle, row by row, -2 outside the map; k is the lane's own number; other lanes have asks =
// false. `count` also counts candidates without room.
__device__ __forceinline__ void report_peak(double here, int first, int k, bool asks, int x, int y, double min_score,
                                            unsigned tag, Candidate* candidates, unsigned capacity, unsigned* count) {
  const double peak = __shfl_sync(ALL_LANES, here, first + 4);
  const double before = __shfl_sync(ALL_LANES, here, first + 3), after = __shfl_sync(ALL_LANES, here, first + 5);
  const double above = __shfl_sync(ALL_LANES, here, first + 1), below = __shfl_sync(ALL_LANES, here, first + 7);
  const bool beats = asks && (k < 4 ? here >= peak : k > 4 && here > peak);
  const unsigned beaten = __ballot_sync(ALL_LANES, beats) >> first & 0x1ff;
  if (asks && k == 0 && beaten == 0 && peak >= min_score) {
    const unsigned place = atomicAdd(count, 1);
    if (place < capacity) candidates[place] = {tag, unsigned(x), unsigned(y), 0, peak, before, after, above, below};
  }
}

// As report_peak, for position (x, y) of a map of `width` times `height`: the warp has the sums of its nine
// windows. total: in each lane below EXACT_SUMS the sum of that number.
__device__ __forceinline__ void score_peak(const Pattern& pattern, unsigned total, int x, int y, int width, int height,
                                           double min_score, unsigned tag, Candidate* candidates, unsigned capacity,
                                           unsigned* count) {
  const int lane = threadIdx.x % 32, k = min(lane, 8);
  const unsigned sum = __shfl_sync(ALL_LANES, total, k), squares = __shfl_sync(ALL_LANES, total, 9 + k),
                 products = __shfl_sync(ALL_LANES, total, 18 + k);
  const int at_x = x + k % 3 - 1, at_y = y + k / 3 - 1;
  const bool is_there = at_x >= 0 && at_x < width && at_y >= 0 && at_y < height;
  const double here = is_there ? score(pattern, sum, squares, products) : -2.0;
  report_peak(here, 0, k, lane < 9, x, y, min_score, tag, candidates, capacity, count);
}

extern "C" {

// Rows of zeros before the first and after the last row of a packed template: the windows above and below a
// suspect meet the template a row further up and down, and lanes look one row ahead.
enum : int { ZERO_ROWS = 2 };
static_assert(ZERO_ROWS == 2, "the host has room for so many (suspects.rs)");

// The template's rows in words of four pixels, the last of each filled up with zeros, from `words` on;
// ZERO_ROWS rows of zeros before the first and after the last. One thread a word, of h + 2 ZERO_ROWS rows.
__global__ void pack_template(const unsigned char* pixels, int pitch, int w, int h, unsigned* words) {
  const int columns = (w + 3) / 4, index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= columns * (h + 2 * ZERO_ROWS)) return;
  const int i = index % columns * 4, j = index / columns - ZERO_ROWS;
  unsigned word = 0;
  for (int k = 0; k < 4 && i + k < w && j >= 0 && j < h; k++) word |= unsigned(pixels[j * pitch + i + k]) << 8 * k;
  words[j * columns + index % columns] = word;
}

}  // extern "C"
