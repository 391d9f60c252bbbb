// What the NCC kernels for tensor cores share: how suspects are told, and their exact scores.
//
// No score map is written. Scores in f32 say which positions *may* be what is asked for, the suspects, with bounds that lose
// none; then their scores, and those of their neighbours, are computed by the exact formula.
//
//   score = (ST - S t1 / n) / sqrt(W),   W = (n SS - S S)(n t2 - t1 t1) / (n n)
//
// Of S t1 / n an integer b near it is taken, so that ST - b is exact. A window or template that is not flat has
// n SS - S S >= n - 1, so 1 / sqrt(W) is 2 at most. The score of a flat window is 0, told exactly. MARGIN is for the
// roundings to f32; how far b is off, and what is cut off of W, each kernel says where it makes bounds.
#pragma once

#include "ncc.cuh"
#include "window_sums.cuh"

constexpr float MARGIN = 1.0f / (1 << 18);

// Positions in a row of a tile.
constexpr int TILE_X = 128;

// Keeps the order of f32 among unsigned numbers; 0 lies below them all.
__device__ __forceinline__ unsigned ordered(float value) {
  const unsigned bits = __float_as_uint(value);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float from_ordered(unsigned key) {
  return key == 0 ? -4.0f : __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// The hardware's, within 2 units in the last place.
__device__ __forceinline__ float inverse_root(float value) {
  asm("rsqrt.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}

// sum + the products of four pixels each.
__device__ __forceinline__ unsigned dot4(unsigned a, unsigned b, unsigned sum) {
  asm("dp4a.u32.u32 %0, %1, %2, %0;" : "+r"(sum) : "r"(a), "r"(b));
  return sum;
}

// Of numbers below 2^20, b not 0. A division of integers takes longer.
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

// Of a score.
struct Bounds {
  float least, most;
};

// A position that may be a peak.
struct Suspect {
  unsigned x, y;
  float bound;  // its score is not higher
  unsigned unused;
};

// What a search in f32 leaves to `settle` of ncc_mma.cuh, which empties it again; before the first search it is all zeros.
struct Suspicion {
  unsigned count;  // of suspects, those too for which there was no room
  unsigned best;   // a lower bound of the best score, ordered(f32)
  unsigned done;   // blocks of `settle` that have finished
  unsigned unused;
};

// Suspects in device memory, for `settle` (ncc_mma.cuh).
struct Suspects {
  Suspicion* state;
  Suspect* list;  // zeros before the first search: `settle` looks before it knows how many there are
  unsigned capacity;

  __device__ __forceinline__ void add(int x, int y, float bound) const {
    const unsigned index = atomicAdd(&state->count, 1);
    if (index < capacity) list[index] = {unsigned(x), unsigned(y), bound, 0};
  }
};

// Sums by which nine scores are computed: S, SS and ST of each.
constexpr int EXACT_SUMS = 27;

// A thread's part of them. Positions are numbered row by row; the suspect is number 4.
struct NineWindows {
  unsigned s[9] = {}, ss[9] = {}, st[9] = {};

  // Adds four columns of an image row: of the windows to the left they begin at the first byte of low and high, of those to
  // the right two bytes later; only bytes in `mask` count. pattern: what the windows above, at and below the suspect have of
  // the template there, and is_there whether the row lies in them.
  __device__ __forceinline__ void add(unsigned low, unsigned high, unsigned mask, const unsigned (&pattern)[3],
                                      const bool (&is_there)[3]) {
#pragma unroll
    for (int dx = 0; dx < 3; dx++) {
      const unsigned pixels = __funnelshift_r(low, high, 8 * dx) & mask;
      const unsigned sum = dot4(pixels, 0x01010101u, 0u), squares = dot4(pixels, pixels, 0u);
#pragma unroll
      for (int i = 0; i < 3; i++) {
        st[3 * i + dx] = dot4(pixels, pattern[i], st[3 * i + dx]);
        if (is_there[i]) {
          s[3 * i + dx] += sum;
          ss[3 * i + dx] += squares;
        }
      }
    }
  }

  // Over the warp: in each lane the sum of its number, S before SS before ST.
  __device__ __forceinline__ unsigned of_warp(int lane) const {
    unsigned mine = 0;
#pragma unroll
    for (int k = 0; k < EXACT_SUMS; k++) {
      const unsigned sum = add_lanes(k < 9 ? s[k] : k < 18 ? ss[k - 9] : st[k - 18]);
      if (lane == k) mine = sum;
    }
    return mine;
  }
};

// Where the windows around a suspect lie: in an image of rows of `pitch` words of four pixels, from pixel (x, y) on, which is the
// one above and to the left of the suspect's first.
struct Around {
  const unsigned* words;
  int pitch, rows;
  int x, y;

  // The suspect's first pixel is (x, y) of an image of rows of `bytes`, whole words.
  __device__ __forceinline__ Around(const unsigned char* pixels, int bytes, int rows, int x, int y)
      : words(reinterpret_cast<const unsigned*>(pixels)), pitch(bytes / 4), rows(rows), x(x - 1), y(y - 1) {}
};

// Adds a warp's part of rows first <= j < end, up to h + 1, of the image, row 0 being the suspect's first. words: those of the
// template, row by row, of four pixels each, the last of a row filled up with zeros. So many loads are started at once as
// AT_ONCE rows want.
template <int AT_ONCE>
__device__ __forceinline__ void add_rows(NineWindows& windows, const Around& image, int w, int h, int first, int end,
                                         const unsigned* words) {
  const int lane = threadIdx.x % 32;
  const int columns = (w + 3) / 4, at_once = quotient(32, columns), lane_row = quotient(lane, columns);
  const int column = lane - lane_row * columns;
  if (lane_row >= at_once) return;
  const unsigned mask = 0xffffffffu >> (32 - 8 * min(w - 4 * column, 4));
  // Counted in words: frames of 2^31 bytes or more have less than 2^31 of these. Neighbours outside the frame do not count,
  // whatever is read for them.
  const int shift = (image.x & 3) * 8, last = image.pitch * image.rows - 1;
#pragma unroll AT_ONCE
  for (int j = first + lane_row; j < min(end, h + 1); j += at_once) {
    const int at = min(max(image.y + 1 + j, 0), image.rows - 1) * image.pitch + (image.x >> 2) + column;
    unsigned pixels[3], pattern[3];
    bool is_there[3];
#pragma unroll
    for (int i = 0; i < 3; i++) {
      pixels[i] = image.words[min(max(at + i, 0), last)];
      // The image's row j meets the template's row j + 1 at the position above.
      const int of = j + 1 - i;
      is_there[i] = of >= 0 && of < h;
      pattern[i] = is_there[i] ? __ldg(words + of * columns + column) : 0;
    }
    windows.add(__funnelshift_r(pixels[0], pixels[1], shift), __funnelshift_r(pixels[1], pixels[2], shift), mask, pattern,
                is_there);
  }
}

// Appends position (x, y) of a map of `width` times `height` to the candidates if it scores min_score or more and precedes
// its neighbours in the tie order. A warp; total: the sum of that number in each lane. `count` counts those too for which
// there was no room.
__device__ __forceinline__ void report_peak(const Pattern& pattern, unsigned total, int x, int y, int width, int height,
                                            double min_score, unsigned tag, Candidate* candidates, unsigned capacity,
                                            unsigned* count) {
  const int lane = threadIdx.x % 32, k = min(lane, 8);
  const unsigned sum = __shfl_sync(ALL_LANES, total, k), squares = __shfl_sync(ALL_LANES, total, 9 + k),
                 products = __shfl_sync(ALL_LANES, total, 18 + k);
  const int at_x = x + k % 3 - 1, at_y = y + k / 3 - 1;
  const bool is_there = at_x >= 0 && at_x < width && at_y >= 0 && at_y < height;
  const double here = is_there ? score(pattern, sum, squares, products) : -2.0;
  const double peak = __shfl_sync(ALL_LANES, here, 4);
  const double before = __shfl_sync(ALL_LANES, here, 3), after = __shfl_sync(ALL_LANES, here, 5);
  const double above = __shfl_sync(ALL_LANES, here, 1), below = __shfl_sync(ALL_LANES, here, 7);
  const bool beats = k < 4 ? here >= peak : k > 4 && here > peak;
  if (!__any_sync(ALL_LANES, beats) && peak >= min_score && lane == 0) {
    const unsigned place = atomicAdd(count, 1);
    if (place < capacity) candidates[place] = {tag, unsigned(x), unsigned(y), 0, peak, before, after, above, below};
  }
}

extern "C" {

// The template's rows in words of four pixels, the last of each filled up with zeros. One thread a word.
__global__ void pack_template(const unsigned char* pixels, int pitch, int w, int h, unsigned* words) {
  const int columns = (w + 3) / 4, index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= columns * h) return;
  const int i = index % columns * 4, j = index / columns;
  unsigned word = 0;
  for (int k = 0; k < 4 && i + k < w; k++) word |= unsigned(pixels[j * pitch + i + k]) << 8 * k;
  words[index] = word;
}

}  // extern "C"
