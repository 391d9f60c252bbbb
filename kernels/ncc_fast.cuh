// What the NCC kernels for tensor cores share: suspects, window sums of a tile, and exact rescoring.
//
// No score map is written. Scores in f32 say which positions *may* be what is asked for, the suspects, with bounds that lose
// none; `settle` then computes their scores, and those of their neighbours, by the exact formula.
//
//   score = (ST - S t1 / n) / sqrt(W),   W = (n SS - S S)(n t2 - t1 t1) / (n n)
//
// With b = S t1 / n rounded to an integer, r = 1 / sqrt(W) and f = (ST - b) r, the score is f +- r +- MARGIN: the first
// bound is for the rounding of b, which is off by less than 1; the roundings to f32 are below 16 units of 2^-24 together,
// relative to |f| + r, and |f| <= 1 + r, r <= 4 / 3. A window or template that is not flat has n SS - S S >= n - 1, so
// r cannot be larger. That of a flat window is 0, told exactly: W is set to infinity and the score in f32 is 0.
#pragma once

#include "ncc.cuh"
#include "window_sums.cuh"

constexpr float MARGIN = 1.0f / (1 << 18);

// Positions in a row of a tile.
constexpr int TILE_X = 128;

// A position that may be a peak.
struct Suspect {
  unsigned x, y;
  float bound;  // its score is not higher
  unsigned unused;
};

// What a search in f32 leaves to `settle`, which empties it again; before the first search it is all zeros.
struct Suspicion {
  unsigned count;  // of suspects, those too for which there was no room
  unsigned best;   // a lower bound of the best score, ordered(f32)
  unsigned done;   // blocks of `settle` that have finished
  unsigned unused;
};

// A template's numbers as `moments` wants them.
struct Prepared {
  double n;
  double mean;   // t1 / n
  float factor;  // (n t2 - t1 t1) / (n n)
};

// What to search: a region of `width` times `height` positions whose first is at (left, top) of the frame.
struct Search {
  Image frame;  // the whole: rows start at multiples of 16 bytes, and so does the next after each
  int left, top;
  int width, height;
  Pattern pattern;
  Prepared prepared;
  float min_score;
  int all_peaks;  // 0: only the best position is wanted
  int capacity;   // suspects there is room for
  Suspicion* suspicion;
  Suspect* suspects;  // zeros before the first search: `settle` looks before it knows how many there are
};

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

// The sum over a warp, in all its lanes.
__device__ __forceinline__ unsigned add_lanes(unsigned value) {
#if __CUDA_ARCH__ >= 800
  return __reduce_add_sync(ALL_LANES, value);
#else
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL_LANES, value, step);
  return value;
#endif
}

__device__ __forceinline__ void suspect(const Search& search, int x, int y, float bound) {
  const unsigned index = atomicAdd(&search.suspicion->count, 1);
  if (index < search.capacity) search.suspects[index] = {unsigned(x), unsigned(y), bound, 0};
}

// What the epilogue needs to know of a position: b and W, the latter NaN outside the region.
struct Moments {
  int base;
  float squared;
};

// In f64, which costs two cycles where compute_90 is: all integers here are below 2^53, and so exact.
__device__ __forceinline__ Moments moments(const Prepared& t, unsigned s, unsigned ss) {
  // An integer in the low bits of 2^52; 1.5 * 2^52 leaves the same of a rounded one.
  const double two_52 = 4503599627370496.0;
  const double s_d = __dadd_rn(__hiloint2double(0x43300000, s), -two_52);
  const double ss_d = __dadd_rn(__hiloint2double(0x43300000, ss), -two_52);
  const int base = __double2loint(__fma_rn(s_d, t.mean, 1.5 * two_52));
  const double variance = __fma_rn(t.n, ss_d, -__dmul_rn(s_d, s_d));
  // To f32, cut off: 0 or at least 1.
  const unsigned high = __double2hiint(variance), low = __double2loint(variance);
  const float cut = __uint_as_float((high << 3 | low >> 29) - ((1023u - 127u) << 23));
  return {base, high == 0 ? __uint_as_float(0x7f800000u) : __fmul_rn(cut, t.factor)};
}

// Where a tile's moments lie: rows of TILE_X, of which every 32 are shuffled so that the threads of a warp that hold
// products of positions 32 apart (see ncc_wgmma.cu) read different banks.
__device__ __forceinline__ int moments_slot(int x, int y) { return y * TILE_X + (x ^ (x >> 5 << 2)); }

// Room for one warp's prefix sums: those of columns 0 to 3 of every eight, then those of columns 4 to 7, so that lanes write
// 16 bytes side by side, and in other banks, so that they read them side by side.
constexpr int SCRATCH_HALF = 144;
struct Scratch {
  unsigned s[2 * SCRATCH_HALF], ss[2 * SCRATCH_HALF];

  __device__ static __forceinline__ int index(int x) { return (x >> 3) * 4 + (x & 3) + (x & 4 ? SCRATCH_HALF : 0); }
};

// Sums of I and of I I of 8 columns of a tile.
struct ColumnSums {
  // Columns 0, 2 and 1, 3 of each four, packed by two: 257 rows fit in 16 bits.
  unsigned even[2] = {}, odd[2] = {};
  unsigned squares[8] = {};

  __device__ __forceinline__ void add(uint2 row) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const unsigned word = half ? row.y : row.x;
      even[half] += word & 0x00ff00ffu;
      odd[half] += word >> 8 & 0x00ff00ffu;
#pragma unroll
      for (int i = 0; i < 4; i++) squares[4 * half + i] += byte(word, i) * byte(word, i);
    }
  }

  __device__ __forceinline__ void slide(uint2 enters, uint2 leaves) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const unsigned e = half ? enters.y : enters.x, l = half ? leaves.y : leaves.x;
      even[half] += (e & 0x00ff00ffu) - (l & 0x00ff00ffu);
      odd[half] += (e >> 8 & 0x00ff00ffu) - (l >> 8 & 0x00ff00ffu);
#pragma unroll
      for (int i = 0; i < 4; i++) {
        squares[4 * half + i] += (byte(e, i) - byte(l, i)) * (byte(e, i) + byte(l, i));
      }
    }
  }

  __device__ __forceinline__ void add(const uint4* stored) {
    const uint4 a = stored[0], b = stored[32], c = stored[64];
    even[0] += a.x, even[1] += a.y, odd[0] += a.z, odd[1] += a.w;
    squares[0] += b.x, squares[1] += b.y, squares[2] += b.z, squares[3] += b.w;
    squares[4] += c.x, squares[5] += c.y, squares[6] += c.z, squares[7] += c.w;
  }

  __device__ __forceinline__ void store(uint4* to) const {
    to[0] = {even[0], even[1], odd[0], odd[1]};
    to[32] = {squares[0], squares[1], squares[2], squares[3]};
    to[64] = {squares[4], squares[5], squares[6], squares[7]};
  }

  __device__ __forceinline__ unsigned sum(int i) const {
    const unsigned packed = i & 1 ? odd[i / 4] : even[i / 4];
    return i & 2 ? packed >> 16 : packed & 0xffffu;
  }

 private:
  __device__ static __forceinline__ unsigned byte(unsigned word, int i) { return __byte_perm(word, 0, 0x4440 + i); }
};

// 16-byte words that a block of rows' sums take: three a lane.
constexpr int BLOCK_QUADS = 96;

// Blocks of `band` rows that lie in some band's first window whole; 0 if there is no room for their sums among the moments.
__device__ __forceinline__ int whole_blocks(int band, int rows, int h) {
  const int whole = ((rows - 1) / band * band + h) / band;
  return whole * BLOCK_QUADS * 16 <= rows * TILE_X * int(sizeof(Moments)) ? whole : 0;
}

// Moments of a tile's first `rows` rows of positions, by WARPS warps; this is number `warp` of them.
//
// Each warp has a band of rows: each lane slides down the sums of 8 columns, the warp adds them up along the row, and windows
// are differences of these prefix sums. Where a band begins, the columns' sums are put together from sums of blocks of rows,
// as many as a band has, which all warps compute first and leave in `out` for each other.
//
// A warp has BANDS bands, next to each other, and goes through them side by side, so that there is always something to do.
//
// tile: pitch bytes a row, at least 127 + w columns. Positions outside first_x <= x < end_x, y < end_y are marked so.
template <int WARPS, int BANDS, int BARRIER>
__device__ __forceinline__ void sum_windows(const unsigned char* tile, int pitch, const Search& search, int rows, int warp,
                                            int first_x, int end_x, int end_y, Scratch* scratch, Moments* out) {
  const int lane = threadIdx.x % 32;
  const int w = search.pattern.w, h = search.pattern.h;
  const Prepared& prepared = search.prepared;
  // Lanes beyond the tile's columns repeat its last ones.
  const unsigned char* columns = tile + min(lane * 8, pitch - 8);
  const auto load = [=](int y) { return *reinterpret_cast<const uint2*>(columns + min(y, rows + h - 2) * pitch); };
  const int band = (rows + WARPS * BANDS - 1) / (WARPS * BANDS), first_row = warp * BANDS * band;
  const int whole = whole_blocks(band, rows, h);
  uint4* blocks = reinterpret_cast<uint4*>(out) + lane;
  for (int block = warp; block < whole; block += WARPS) {
    ColumnSums sums;
#pragma unroll 4
    for (int j = 0; j < band; j++) sums.add(load(block * band + j));
    sums.store(blocks + block * BLOCK_QUADS);
  }
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(BARRIER), "n"(WARPS * 32) : "memory");
  ColumnSums columns_sums[BANDS];
#pragma unroll
  for (int b = 0; b < BANDS; b++) {
    if (first_row + b * band >= rows) continue;
    const int stored = whole ? h / band : 0;
    for (int j = 0; j < stored; j++) columns_sums[b].add(blocks + (warp * BANDS + b + j) * BLOCK_QUADS);
    for (int j = stored * band; j < h; j++) columns_sums[b].add(load(first_row + b * band + j));
  }
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(BARRIER), "n"(WARPS * 32) : "memory");
  const int at = Scratch::index(lane), at_end = Scratch::index(lane + w);
  // 0, or NaN for columns outside the region.
  float beside[TILE_X / 32];
#pragma unroll
  for (int k = 0; k < TILE_X / 32; k++) {
    beside[k] = lane + 32 * k < first_x || lane + 32 * k >= end_x ? __int_as_float(0x7fffffff) : 0.0f;
  }
  for (int row = 0; row < band; row++) {
    // Sums of the columns to the left of each: first over all of the lane, then over the lanes.
    unsigned before[BANDS], before_squares[BANDS], sum[BANDS], sum_squares[BANDS];
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
      sum[b] = sum_squares[b] = 0;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        sum[b] += columns_sums[b].sum(i);
        sum_squares[b] += columns_sums[b].squares[i];
      }
      before[b] = sum[b];
      before_squares[b] = sum_squares[b];
    }
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
#pragma unroll
      for (int b = 0; b < BANDS; b++) {
        const unsigned s = __shfl_up_sync(ALL_LANES, before[b], step);
        const unsigned ss = __shfl_up_sync(ALL_LANES, before_squares[b], step);
        if (lane >= step) {
          before[b] += s;
          before_squares[b] += ss;
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
      unsigned s[8], ss[8];
      s[0] = before[b] - sum[b];
      ss[0] = before_squares[b] - sum_squares[b];
#pragma unroll
      for (int i = 1; i < 8; i++) {
        s[i] = s[i - 1] + columns_sums[b].sum(i - 1);
        ss[i] = ss[i - 1] + columns_sums[b].squares[i - 1];
      }
      if (8 * lane < TILE_X + w) {
        uint4* to = reinterpret_cast<uint4*>(scratch[b].s) + lane;
        to[0] = {s[0], s[1], s[2], s[3]};
        to[SCRATCH_HALF / 4] = {s[4], s[5], s[6], s[7]};
        to = reinterpret_cast<uint4*>(scratch[b].ss) + lane;
        to[0] = {ss[0], ss[1], ss[2], ss[3]};
        to[SCRATCH_HALF / 4] = {ss[4], ss[5], ss[6], ss[7]};
      }
    }
    __syncwarp();
#pragma unroll
    for (int b = 0; b < BANDS; b++) {
      const int y = first_row + b * band + row;
      if (y >= rows) continue;
#pragma unroll
      for (int k = 0; k < TILE_X / 32; k++) {
        const int x = lane + 32 * k, begin = at + 16 * k, end = at_end + 16 * k;
        Moments m =
            moments(prepared, scratch[b].s[end] - scratch[b].s[begin], scratch[b].ss[end] - scratch[b].ss[begin]);
        m.squared = __fadd_rn(m.squared, y < end_y ? beside[k] : __int_as_float(0x7fffffff));
        out[moments_slot(x, y)] = m;
      }
      columns_sums[b].slide(load(y + h), load(y));
    }
  }
}

// d += A B: 16 by 8 sums of 32 products.
__device__ __forceinline__ void multiply_16x8(int (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                                              unsigned b1) {
  asm(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The low and the high bytes of the pixels' squares, each in a plane like that of the pixels. `threads` threads share it.
__device__ __forceinline__ void square_pixels(unsigned char* tile, int plane, int thread, int threads) {
#pragma unroll 2
  for (int i = thread; i < plane / 4; i += threads) {
    unsigned* word = reinterpret_cast<unsigned*>(tile) + i;
    const unsigned value = *word;
    unsigned square[4];
#pragma unroll
    for (int k = 0; k < 4; k++) square[k] = __byte_perm(value, 0, 0x4440 + k) * __byte_perm(value, 0, 0x4440 + k);
    const unsigned first = __byte_perm(square[0], square[1], 0x5410), second = __byte_perm(square[2], square[3], 0x5410);
    word[plane / 4] = __byte_perm(first, second, 0x6420);
    word[plane / 2] = __byte_perm(first, second, 0x7531);
  }
}

// The same as `sum_windows` for templates of at most 16 CHUNKS - 15 columns, on the tensor cores.
//
// Sums along a row are products with a band of ones: A[dx][k] = 1 for dx <= k < dx + w, B[k][n] the row's pixels from
// x = 16 n on, so that D[dx][n] belongs to x = 16 n + dx. Three such: of the pixels, and of the low and the high byte of
// their squares (`square_pixels`), which lie `plane` bytes further on each. Down the rows they slide: half of K is the row
// that enters, the other half, with a band of minus ones, the row that leaves.
template <int CHUNKS, int WARPS, int BARRIER>
__device__ __forceinline__ void multiply_windows(const unsigned char* tile, int plane, int pitch, const Search& search,
                                                 int rows, int warp, int first_x, int end_x, int end_y, Moments* out) {
  const int lane = threadIdx.x % 32;
  const int w = search.pattern.w, h = search.pattern.h;
  const Prepared& prepared = search.prepared;
  unsigned ones[CHUNKS][2], minus[CHUNKS][2];
#pragma unroll
  for (int i = 0; i < 2 * CHUNKS; i++) {
    const int k = i / 2 * 16 + lane % 4 * 4, dx = lane / 4 + i % 2 * 8;
    unsigned word = 0;
    for (int j = 0; j < 4; j++) word |= k + j >= dx && k + j < dx + w ? 1u << 8 * j : 0;
    ones[i / 2][i % 2] = word;
    minus[i / 2][i % 2] = word * 255;
  }
  // Pixel 4t of chunk g, for lane 4 g + t.
  const unsigned char* pixels = tile + 4 * lane;
  const auto load = [=](int kind, int chunk, int y) {
    return *reinterpret_cast<const unsigned*>(pixels + kind * plane + y * pitch + 16 * chunk);
  };
  int d[3][4] = {};
  const auto add_rows = [&](int first, int count) {
    for (int j = 0; j < count; j += 2) {
#pragma unroll
      for (int i = 0; i < 3 * CHUNKS; i++) {
        const int kind = i / CHUNKS, chunk = i % CHUNKS;
        multiply_16x8(d[kind], ones[chunk][0], ones[chunk][1], ones[chunk][0], ones[chunk][1], load(kind, chunk, first + j),
                      j + 1 < count ? load(kind, chunk, first + j + 1) : 0);
      }
    }
  };
  const int band = (rows + WARPS - 1) / WARPS, first_row = warp * band, end_row = min(first_row + band, rows);
  const int whole = whole_blocks(band, rows, h);
  int4* blocks = reinterpret_cast<int4*>(out) + lane;
  for (int block = warp; block < whole; block += WARPS) {
#pragma unroll
    for (int i = 0; i < 12; i++) d[i / 4][i % 4] = 0;
    add_rows(block * band, band);
#pragma unroll
    for (int i = 0; i < 3; i++) blocks[block * BLOCK_QUADS + 32 * i] = {d[i][0], d[i][1], d[i][2], d[i][3]};
  }
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(BARRIER), "n"(WARPS * 32) : "memory");
#pragma unroll
  for (int i = 0; i < 12; i++) d[i / 4][i % 4] = 0;
  if (first_row < end_row) {
    const int stored = whole ? h / band : 0;
    for (int j = 0; j < stored; j++) {
#pragma unroll
      for (int i = 0; i < 3; i++) {
        const int4 sums = blocks[(warp + j) * BLOCK_QUADS + 32 * i];
        d[i][0] += sums.x, d[i][1] += sums.y, d[i][2] += sums.z, d[i][3] += sums.w;
      }
    }
    add_rows(first_row + stored * band, h - stored * band);
  }
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(BARRIER), "n"(WARPS * 32) : "memory");
  const int x = lane % 4 * 32 + lane / 4;
  // 0, or NaN for columns outside the region.
  float beside[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int at = x + i % 2 * 16 + i / 2 * 8;
    beside[i] = at < first_x || at >= end_x ? __int_as_float(0x7fffffff) : 0.0f;
  }
  for (int y = first_row; y < end_row; y++) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int at = x + i % 2 * 16 + i / 2 * 8;
      Moments m = moments(prepared, d[0][i], d[1][i] + 256 * d[2][i]);
      m.squared = __fadd_rn(m.squared, y < end_y ? beside[i] : __int_as_float(0x7fffffff));
      out[moments_slot(at, y)] = m;
    }
#pragma unroll
    for (int i = 0; i < 3 * CHUNKS; i++) {
      const int kind = i / CHUNKS, chunk = i % CHUNKS;
      multiply_16x8(d[kind], ones[chunk][0], ones[chunk][1], minus[chunk][0], minus[chunk][1], load(kind, chunk, y + h),
                    load(kind, chunk, y));
    }
  }
}

// Suspects among a tile's positions whose bounds from below and above lie where their moments were: those that reach `floor`
// and that no neighbour in the tile surely beats. Each of WARPS warps has a band of rows.
template <int WARPS>
__device__ __forceinline__ void find_peaks(const Search& search, const Moments* bounds, int rows, int left, int top,
                                           float floor, int warp) {
  const int band = (rows + WARPS - 1) / WARPS, first = warp * band, end = min(first + band, rows);
  for (int x = threadIdx.x % 32; x < TILE_X; x += 32) {
    // The highest bound from below among three in a row. NaN, of positions outside the region, is no maximum.
    const auto highest = [=](int y) {
      if (y < 0 || y >= rows) return -4.0f;
      float top = __int_as_float(bounds[moments_slot(x, y)].base);
      top = fmaxf(top, __int_as_float(bounds[moments_slot(max(x - 1, 0), y)].base));
      return fmaxf(top, __int_as_float(bounds[moments_slot(min(x + 1, TILE_X - 1), y)].base));
    };
    float above = highest(first - 1), here = highest(first);
#pragma unroll 4
    for (int y = first; y < end; y++) {
      const float below = highest(y + 1), bound = bounds[moments_slot(x, y)].squared;
      if (bound >= floor && fmaxf(fmaxf(above, here), below) <= __fadd_rn(bound, 3.0f * MARGIN)) {
        suspect(search, left + x, top + y, __fadd_rn(bound, MARGIN));
      }
      above = here;
      here = below;
    }
  }
}

// Scores the suspects exactly and appends to the candidates those that score min_score or more and precede their neighbours
// in the tie order. Where only the best is wanted, suspects that cannot be it any more are passed over.
//
// Any grid; block SETTLE_THREADS; columns h + (columns + 2)(h + 2) words of dynamic shared memory, columns = w / 4 rounded
// up. A block takes one suspect after another. words: the template, of four pixels each, the last of a row filled up with
// zeros. counts[0] is the number of candidates, counts[1] of searches that had more suspects than room: such a search is to
// be done again by kernels that write a map.
constexpr int SETTLE_THREADS = 256;

__device__ __forceinline__ void settle_suspects(const Search& search, const unsigned* words, double min_score,
                                                unsigned tag, Candidate* candidates,
                                                unsigned capacity, unsigned* counts) {
  constexpr int WARPS = SETTLE_THREADS / 32;
  __shared__ Suspect survivors[SETTLE_THREADS];
  __shared__ int survivor_count;
  extern __shared__ unsigned window[];
  // Two, so that one can be written while the other is being read.
  __shared__ unsigned partial[2][WARPS][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const Pattern& pattern = search.pattern;
  const Image& frame = search.frame;
  if (threadIdx.x == 0) survivor_count = 0;
  // Each thread looks at a suspect; fetched along with the count, before it is known whether it is there.
  unsigned index = threadIdx.x * gridDim.x + blockIdx.x;
  Suspect mine = search.suspects[min(index, unsigned(search.capacity) - 1)];
  const unsigned count = *(volatile unsigned*)&search.suspicion->count;
  const float best = from_ordered(*(volatile unsigned*)&search.suspicion->best);
  __syncthreads();
  // Everyone has read it: the last leaves everything as it was before the search.
  if (threadIdx.x == SETTLE_THREADS - 1 && atomicAdd(&search.suspicion->done, 1) + 1 == gridDim.x) {
    if (count > search.capacity) atomicAdd(&counts[1], 1);
    *search.suspicion = {0, 0, 0, 0};
  }
  const unsigned known = min(count, unsigned(search.capacity));
  const int columns = (pattern.w + 3) / 4, strips = SETTLE_THREADS / columns;
  const int strip_rows = (pattern.h + strips - 1) / strips;
  const int last_word = (frame.pitch * frame.height >> 2) - 1;
  // The template, behind the window.
  unsigned* pattern_words = window + (pattern.h + 2) * (columns + 2);
  if (blockIdx.x < known) {
#pragma unroll 4
    for (int i = threadIdx.x; i < pattern.h * columns; i += SETTLE_THREADS) pattern_words[i] = __ldg(words + i);
  }
  int parity = 0;
  for (unsigned round = 0; round < known; round += gridDim.x * SETTLE_THREADS) {
    if (index < known && (search.all_peaks || mine.bound >= best)) survivors[atomicAdd(&survivor_count, 1)] = mine;
    __syncthreads();
    const int these = survivor_count;
    for (int number = 0; number < these; number++, parity ^= 1) {
      const Suspect it = survivors[number];
      const int x = it.x, y = it.y;
      // The window and a pixel around it. Neighbours outside the frame do not count, whatever is read for them.
      const int left = search.left + x - 1, top = search.top + y - 1;
      const int pitch = columns + 2;
      if (number > 0) __syncthreads();
#pragma unroll 4
      for (int i = threadIdx.x; i < (pattern.h + 2) * pitch; i += SETTLE_THREADS) {
        const int j = i / pitch, row = min(max(top + j, 0), frame.height - 1);
        const int word = (row * frame.pitch + left >> 2) + i - j * pitch;
        window[i] = __ldg(reinterpret_cast<const unsigned*>(frame.pixels) + min(max(word, 0), last_word));
      }
      __syncthreads();
      unsigned s[9] = {}, ss[9] = {}, st[9] = {};
      // Each thread has a column of words and a strip of rows; strips overlap by the rows above and below.
      const int column = threadIdx.x % columns, first = threadIdx.x / columns * strip_rows;
      const int end = min(first + strip_rows, pattern.h);
      if (first < end) {
        const int shift = (left & 3) * 8;
        const unsigned mask = 0xffffffffu >> (32 - 8 * min(pattern.w - 4 * column, 4));
        unsigned above = 0, here = 0;
#pragma unroll 1
        for (int j = first - 1; j <= end; j++) {
          const unsigned below = j + 1 < end ? pattern_words[(j + 1) * columns + column] : 0;
          const unsigned* row = window + (j + 1) * pitch + column;
          const unsigned low = __funnelshift_r(row[0], row[1], shift), high = __funnelshift_r(row[1], row[2], shift);
          // Row j of the image meets row j - dy of the template: the rows below, at and above it for dy = -1, 0 and 1.
#pragma unroll
          for (int dx = 0; dx < 3; dx++) {
            const unsigned image = __funnelshift_r(low, high, 8 * dx) & mask;
            const unsigned sum = dot4(image, 0x01010101u, 0u), squares = dot4(image, image, 0u);
            st[dx] = dot4(image, below, st[dx]);
            st[3 + dx] = dot4(image, here, st[3 + dx]);
            st[6 + dx] = dot4(image, above, st[6 + dx]);
            if (j + 1 < end) s[dx] += sum, ss[dx] += squares;
            if (j >= first && j < end) s[3 + dx] += sum, ss[3 + dx] += squares;
            if (j > first) s[6 + dx] += sum, ss[6 + dx] += squares;
          }
          above = here;
          here = below;
        }
      }
#pragma unroll
      for (int k = 0; k < 9; k++) {
        const unsigned sum = add_lanes(s[k]), squares = add_lanes(ss[k]), products = add_lanes(st[k]);
        if (lane == 0) {
          partial[parity][warp][k] = sum;
          partial[parity][warp][9 + k] = squares;
          partial[parity][warp][18 + k] = products;
        }
      }
      __syncthreads();
      if (warp != 0) continue;
      unsigned total = 0;
      for (int i = 0; i < WARPS && lane < 27; i++) total += partial[parity][i][lane];
      const int k = min(lane, 8);
      const unsigned sum = __shfl_sync(ALL_LANES, total, k), squares = __shfl_sync(ALL_LANES, total, 9 + k),
                     products = __shfl_sync(ALL_LANES, total, 18 + k);
      const int at_x = x + k % 3 - 1, at_y = y + k / 3 - 1;
      const bool is_there = at_x >= 0 && at_x < search.width && at_y >= 0 && at_y < search.height;
      const double here = is_there ? score(pattern, sum, squares, products) : -2.0;
      const double peak = __shfl_sync(ALL_LANES, here, 4);
      const double before = __shfl_sync(ALL_LANES, here, 3), after = __shfl_sync(ALL_LANES, here, 5);
      const double above = __shfl_sync(ALL_LANES, here, 1), below = __shfl_sync(ALL_LANES, here, 7);
      const bool beats = k < 4 ? here >= peak : k > 4 && here > peak;
      if (!__any_sync(ALL_LANES, beats) && peak >= min_score && lane == 0) {
        const unsigned place = atomicAdd(&counts[0], 1);
        if (place < capacity) candidates[place] = {tag, it.x, it.y, 0, peak, before, after, above, below};
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) survivor_count = 0;
    __syncthreads();
    index += gridDim.x * SETTLE_THREADS;
    mine = search.suspects[min(index, unsigned(search.capacity) - 1)];
  }
}
