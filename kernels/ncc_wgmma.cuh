// What ncc_wgmma.cu does beside multiplying: what a launch is told, window sums of a tile, bounds of scores, exact scores.
//
// V = n SS - S S is cut off to whole multiples of 2^shift and then to f32. It is 0 only for a flat window: otherwise V is
// n - 1 or more, and 2^shift less than that. With `scale` = 2^shift (n t2 - t1 t1) / (n n), V scale <= W < (V + 1) scale. Of
// b = S t1 / n the integer below it is taken, with an error of the multiplication below 1/4. So with e = ST - b, the score
// lies between (e - BELOW) / sqrt(.) and (e + ABOVE) / sqrt(.), of the two roots the one that makes it wider, but for
// roundings to f32, which are below 16 units of 2^-24 together, relative to the bound: MARGIN, for bounds up to 4.
//
// What is kept is V - 1. Of a flat window that wraps around to nearly 2^32: there ST = b but for roundings down, so that its
// score, 0, lies between the bounds, and these are below 1/1000.
#pragma once

#include "ncc_fast.cuh"

constexpr float ABOVE = 1.0f;
constexpr float BELOW = 1.5f;

// Warps of a block that sum windows and settle suspects; they have a named barrier for themselves.
constexpr int SUM_WARPS = 11;
constexpr int SUM_BARRIER = 8;

// A template, as `prepare` of the launcher puts it into the device's memory.
struct Member {
  Pattern pattern;
  const uint4* spread;    // bands of A, see ncc_wgmma.cu
  const unsigned* words;  // rows of four pixels a word, the last of each filled up with zeros
  unsigned mean;          // 2^24 t1 / n, rounded
  float scale;            // 2^shift (n t2 - t1 t1) / (n n)
};

// What the blocks of a search let each other know of a member; all zeros before and after.
struct Progress {
  unsigned best;  // a lower bound of the best score, ordered(f32)
  unsigned done;  // of the first member: warpgroups that have finished
};

// Templates of one size, and a region of `width` times `height` positions to search them in, whose first is at (left, top) of
// the frame.
struct Search {
  const Member* members;
  int left, top;
  int width, height;
  int first_block;     // of the launch
  unsigned tag;        // of the first member's candidates; those of the others follow
  int first_progress;  // of its members
  unsigned short members_count, w, h, tile_rows, across, unused;
};

// As many as the parameters of a kernel have room for.
constexpr int MAX_SEARCHES = 64;

struct Launch {
  Image frame;  // the whole: rows start at multiples of 16 bytes, and so does the next after each
  Progress* progress;
  Candidate* candidates;
  unsigned* count;  // of candidates, those too for which there was no room
  unsigned capacity;
  int searches;
  int shared_bytes;
  int all_peaks;     // 0: only the best position of each member is wanted; otherwise a search has one member
  float min_score;   // not above the following
  double min_score_exact;
  Search search[MAX_SEARCHES];
};

// sum + four pixels, each with its sign.
__device__ __forceinline__ int add_signed(unsigned pixels, int signs, int sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pixels), "r"(signs));
  return sum;
}

// What the epilogue needs to know of a position.
struct Moments {
  unsigned sum;    // 2^8 S
  float variance;  // V 2^-shift cut off, less 1; 2^32 - 256 if flat; NaN outside the region
};

// Of the score of a position where ST - b is e. They are off by less than MARGIN.
__device__ __forceinline__ Bounds score_bounds(int e, float variance, float scale) {
  const float wide = inverse_root(__fmul_rn(__fadd_rn(variance, 1.0f), scale));
  const float narrow = inverse_root(__fmul_rn(__fadd_rn(variance, 2.0f), scale));
  const float least = __fadd_rn(float(e), -BELOW), most = __fadd_rn(float(e), ABOVE);
  return {__fmul_rn(least, least > 0.0f ? narrow : wide), __fmul_rn(most, most > 0.0f ? wide : narrow)};
}

// Where a tile's moments lie: rows of TILE_X, in each first two of every four neighbours, then the other two, so that a warp
// writes 16 bytes a lane side by side; pairs are shuffled so that the threads of a warp that hold products of positions 32
// apart (see ncc_wgmma.cu) read different banks.
__device__ __forceinline__ int moments_slot(int x, int y) {
  const int second = x >> 1 & 1, pair = x >> 2 ^ x >> 5 ^ second << 2;
  return y * TILE_X + second * (TILE_X / 2) + pair * 2 + (x & 1);
}

// a b + c, the product of 64 bits too.
__device__ __forceinline__ long long multiply_wide(int a, int b, long long c) {
  long long result;
  asm("mad.wide.s32 %0, %1, %2, %3;" : "=l"(result) : "r"(a), "r"(b), "l"(c));
  return result;
}

// Columns of a tile where sums along the rows are made outright: every 128 / EDGES.
constexpr int EDGES = 2;
constexpr int EDGE_LANES = 32 / EDGES;

// Of four columns x of a tile, sums of I(x + w) - I(x) and of I(x + w)^2 - I(x)^2 down some rows: what the sums of a window
// change by when it moves to the right.
struct Differences {
  int sums[4] = {};
  // Of the squares, what is added, and that and what is taken off.
  unsigned plus[4] = {}, all[4] = {};

  // Rows enter and leave: entering and leaving on the right, then on the left.
  __device__ __forceinline__ void slide(uint2 enters, uint2 leaves) {
    add(enters.y, enters.x, leaves.y, leaves.x, 0x01ffff01, 0xff0000ffu);
  }

  // Two rows enter.
  __device__ __forceinline__ void add(uint2 one, uint2 two) {
    add(one.y, one.x, two.y, two.x, int(0xff01ff01), 0x00ff00ffu);
  }

  __device__ __forceinline__ void add(const int4* stored) {
    const int4 a = stored[0], b = stored[32];
    sums[0] += a.x, sums[1] += a.y, sums[2] += a.z, sums[3] += a.w;
    all[0] -= b.x, all[1] -= b.y, all[2] -= b.z, all[3] -= b.w;
  }

  __device__ __forceinline__ void store(int4* to) const {
    to[0] = {sums[0], sums[1], sums[2], sums[3]};
    to[32] = {int(square(0)), int(square(1)), int(square(2)), int(square(3))};
  }

  __device__ __forceinline__ unsigned square(int i) const { return 2 * plus[i] - all[i]; }

 private:
  // Four words of a pixel of each column become four of a column each.
  __device__ __forceinline__ void add(unsigned a, unsigned b, unsigned c, unsigned d, int signs, unsigned positive) {
    const unsigned ab[2] = {__byte_perm(a, b, 0x5140), __byte_perm(a, b, 0x7362)};
    const unsigned cd[2] = {__byte_perm(c, d, 0x5140), __byte_perm(c, d, 0x7362)};
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const unsigned column = __byte_perm(ab[i / 2], cd[i / 2], i % 2 ? 0x7632 : 0x5410);
      sums[i] = add_signed(column, signs, sums[i]);
      plus[i] = dot4(column, column & positive, plus[i]);
      all[i] = dot4(column, column, all[i]);
    }
  }
};

// Each becomes the sum over the lanes up to its own, of the same EDGE_LANES.
template <int STEP = 1>
__device__ __forceinline__ void add_lanes_before(unsigned& one, unsigned& two) {
  if constexpr (STEP < EDGE_LANES) {
    // The shuffle says itself whether there is such a lane.
    asm volatile(
        "{\n"
        ".reg .pred is_there, is_too;\n"
        ".reg .b32 a, b;\n"
        "shfl.sync.up.b32 a|is_there, %0, %2, %3, 0xffffffff;\n"
        "shfl.sync.up.b32 b|is_too, %1, %2, %3, 0xffffffff;\n"
        "@is_there add.u32 %0, %0, a;\n"
        "@is_too add.u32 %1, %1, b;\n"
        "}"
        : "+r"(one), "+r"(two)
        : "n"(STEP), "n"((32 - EDGE_LANES) << 8));
    add_lanes_before<2 * STEP>(one, two);
  }
}

__device__ __forceinline__ void sync_sum_warps() {
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(SUM_BARRIER), "n"(SUM_WARPS * 32) : "memory");
}

// Four pixels a lane of each row of a tile, and four that are w columns to their right.
struct TwoColumns {
  const unsigned char* left;
  int pitch, right, after, shift;

  __device__ __forceinline__ TwoColumns(const unsigned char* tile, int pitch, int w)
      : left(tile + threadIdx.x % 32 * 4), pitch(pitch), right(w & ~3), shift(8 * (w & 3)) {
    const int x = threadIdx.x % 32 * 4;
    after = min(x + right + 4, pitch - 4) - x;
  }

  __device__ __forceinline__ uint2 load(int y) const {
    const unsigned char* row = left + y * pitch;
    const unsigned low = *reinterpret_cast<const unsigned*>(row + right);
    const unsigned high = *reinterpret_cast<const unsigned*>(row + after);
    return {*reinterpret_cast<const unsigned*>(row), __funnelshift_r(low, high, shift)};
  }

  __device__ __forceinline__ void add_rows(Differences& to, int first, int count) const {
#pragma unroll 2
    for (int j = 0; j + 1 < count; j += 2) to.add(load(first + j), load(first + j + 1));
    if (count & 1) to.add(load(first + count - 1), uint2{0, 0});
  }
};

// Of numbers below 2^16, b not 0. A division of integers takes longer.
__device__ __forceinline__ int quotient(int a, int b) { return int(__fdividef(float(a) + 0.5f, float(b))); }

// Moments of a tile's first `rows` rows of positions, by SUM_WARPS warps.
//
// A lane has four neighbouring columns, a warp a band of rows. Down the band slide
//   - S and SS at two columns, the edges: first, sums along rows are made of these windows' rows,
//   - differences between windows beside each other (`Differences`), which lead from there to the other columns.
// Where a band begins, differences are put together from those of blocks of rows, which all warps sum before, and of the rows
// above and below these.
struct Bands {
  int rows;    // of a band
  int block;   // rows of a block
  int blocks;  // 0: bands do without
  int pieces;  // that a block is stored in; each takes as much room as a row of moments

  __device__ __forceinline__ Bands(const Search& search, int tile_rows)
      : rows((tile_rows + SUM_WARPS - 1) / SUM_WARPS) {
    const int h = search.h;
    // So many rows that there is room for all blocks.
    block = max(rows, 1 + quotient(h - 1 + tile_rows - 1, tile_rows));
    blocks = quotient(quotient(tile_rows - 1, rows) * rows + h, block);
    pieces = 2 * blocks <= tile_rows ? 2 : 1;
    // Of low templates, a band's own rows are summed sooner.
    if (h < 2 * block || blocks > tile_rows) blocks = 0;
  }
};

// First what bands begin with; this is number `warp`. Sums of blocks are left in `out`.
//
// tile: pitch bytes a row, at least 127 + w columns, rows + h - 1 rows. edges: two for each of its rows.
__device__ __forceinline__ void sum_blocks(const unsigned char* tile, int pitch, const Search& search, int rows, int warp,
                                           uint2* edges, Moments* out) {
  const int lane = threadIdx.x % 32;
  const int w = search.w, h = search.h;
  unsigned masks[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int bytes = min(max(w % 16 - 4 * i, 0), 4);
    masks[i] = bytes == 0 ? 0 : 0xffffffffu >> (32 - 8 * bytes);
  }
  for (int i = warp * 32 + lane; i < (rows + h - 1) * EDGES; i += SUM_WARPS * 32) {
    const uint4* pixels = reinterpret_cast<const uint4*>(tile + i / EDGES * pitch + i % EDGES * (TILE_X / EDGES));
    unsigned s = 0, ss = 0;
    const auto add = [&](unsigned word) {
      s = dot4(word, 0x01010101u, s);
      ss = dot4(word, word, ss);
    };
    for (int j = 0; j < w / 16; j++) {
      const uint4 words = pixels[j];
      add(words.x), add(words.y), add(words.z), add(words.w);
    }
    if (w % 16 != 0) {
      const uint4 words = pixels[w / 16];
      add(words.x & masks[0]), add(words.y & masks[1]), add(words.z & masks[2]), add(words.w & masks[3]);
    }
    edges[i] = {s, ss};
  }
  const TwoColumns columns(tile, pitch, w);
  const Bands bands(search, rows);
  int4* stored = reinterpret_cast<int4*>(out) + lane;
  for (int i = warp; i < bands.pieces * bands.blocks; i += SUM_WARPS) {
    const int half = bands.pieces == 2 ? bands.block / 2 : 0, number = bands.pieces == 2 ? i / 2 : i;
    const bool is_second = number * bands.pieces != i || bands.pieces == 1;
    Differences sums;
    columns.add_rows(sums, number * bands.block + (is_second ? half : 0), is_second ? bands.block - half : half);
    sums.store(stored + i * 64);
  }
}

// Then the moments. Positions outside first_x <= x < end_x, y < end_y are marked so.
__device__ __forceinline__ void sum_windows(const unsigned char* tile, int pitch, const Search& search, int rows, int warp,
                                            int first_x, int end_x, int end_y, const uint2* edges, Moments* out) {
  const int lane = threadIdx.x % 32;
  const int w = search.w, h = search.h, n = w * h;
  // n^2 2^14 is more than V can be.
  const int shift = max(2 * (32 - __clz(n - 1)) - 18, 0);
  const long long less = -(1ll << shift);
  // V <= n^2 2^14 < 2^32: of both products the lower half will do, and shift is 0.
  const bool is_small = n <= 512;
  const TwoColumns columns(tile, pitch, w);
  const Bands bands(search, rows);
  const int band = bands.rows, first_row = warp * band, end_row = min(first_row + band, rows);
  const int4* stored = reinterpret_cast<const int4*>(out) + lane;
  Differences beside;
  unsigned edge = 0, edge_squares = 0;
  if (first_row < end_row) {
    int row = first_row;
    if (bands.blocks > 0) {
      const int first = quotient(first_row + bands.block - 1, bands.block), end = quotient(first_row + h, bands.block);
      columns.add_rows(beside, row, first * bands.block - row);
#pragma unroll 1
      for (int i = first * bands.pieces; i < end * bands.pieces; i++) beside.add(stored + i * 64);
      row = end * bands.block;
    }
    columns.add_rows(beside, row, first_row + h - row);
#pragma unroll 4
    for (int j = lane % EDGE_LANES; j < h; j += EDGE_LANES) {
      const uint2 it = edges[(first_row + j) * EDGES + lane / EDGE_LANES];
      edge += it.x;
      edge_squares += it.y;
    }
#pragma unroll
    for (int step = 1; step < EDGE_LANES; step *= 2) {
      edge += __shfl_xor_sync(ALL_LANES, edge, step);
      edge_squares += __shfl_xor_sync(ALL_LANES, edge_squares, step);
    }
  }
  sync_sum_warps();
  const float nan = __int_as_float(0x7fffffff);
  const bool is_inside = first_x <= 0 && end_x >= TILE_X && end_y >= rows;
  uint4* to = reinterpret_cast<uint4*>(out + moments_slot(4 * lane, first_row));
  uint4* to_others = reinterpret_cast<uint4*>(out + moments_slot(4 * lane + 2, first_row));
  const uint2* edge_rows = edges + first_row * EDGES + lane / EDGE_LANES;
  for (int y = first_row; y < end_row; y++) {
    // For the next row, fetched early. After the last they are of no use.
    const int next = min(y, rows - 2) + h;
    const uint2 enters = columns.load(next), leaves = columns.load(y);
    const uint2 edge_enters = edge_rows[(next - y) * EDGES], edge_leaves = edge_rows[0];
    // From the edge to the lane's first column, then on.
    unsigned s[4], ss[4];
    s[0] = ss[0] = 0;
#pragma unroll
    for (int i = 1; i < 4; i++) {
      s[i] = s[i - 1] + beside.sums[i - 1];
      ss[i] = ss[i - 1] + beside.square(i - 1);
    }
    unsigned before = s[3] + beside.sums[3], before_squares = ss[3] + beside.square(3);
    const unsigned own = before, own_squares = before_squares;
    add_lanes_before(before, before_squares);
    before += edge - own;
    before_squares += edge_squares - own_squares;
    unsigned sums[4];
    float variances[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int sum = int(before + s[i]), squares = int(before_squares + ss[i]);
      // Of a flat window it wraps around.
      unsigned cut;
      if (is_small) {
        cut = unsigned(n) * unsigned(squares) - 1u - unsigned(sum) * unsigned(sum);
      } else {
        const long long variance = multiply_wide(-sum, sum, multiply_wide(n, squares, less));
        cut = __funnelshift_r(unsigned(variance), unsigned(variance >> 32), shift);
      }
      sums[i] = unsigned(sum) << 8;
      variances[i] = __uint2float_rz(cut);
    }
    if (!is_inside) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int x = 4 * lane + i;
        if (x < first_x || x >= end_x || y >= end_y) variances[i] = nan;
      }
    }
    *to = {sums[0], __float_as_uint(variances[0]), sums[1], __float_as_uint(variances[1])};
    *to_others = {sums[2], __float_as_uint(variances[2]), sums[3], __float_as_uint(variances[3])};
    to += TILE_X / 2;
    to_others += TILE_X / 2;
    beside.slide(enters, leaves);
    edge += edge_enters.x - edge_leaves.x;
    edge_squares += edge_enters.y - edge_leaves.y;
    edge_rows += EDGES;
  }
}

// Suspects of a warpgroup's tile on their way to the warps that settle them.
constexpr int MAX_SUSPECTS = 32;
struct Suspects {
  unsigned count;             // those too for which there was no room
  unsigned is_more;           // another list follows for the same template
  unsigned at[MAX_SUSPECTS];  // in the tile: x in the low, y in the high half
};

// True if a neighbour in the tile surely has a higher score than a suspect whose score is at most `most`. Of suspects, which
// alone are looked at, bounds lie where their moments were.
__device__ __forceinline__ bool is_beaten(const Moments* bounds, const unsigned* marks, int x, int y, int rows, float most) {
  const float limit = __fadd_rn(most, 3.0f * MARGIN);
#pragma unroll 1
  for (int k = 0; k < 9; k++) {
    const int at_x = x + k % 3 - 1, at_y = y + k / 3 - 1;
    if (at_x < 0 || at_x >= TILE_X || at_y < 0 || at_y >= rows) continue;
    if (marks[at_y * (TILE_X / 32) + at_x / 32] >> at_x % 32 & 1) {
      if (__uint_as_float(bounds[moments_slot(at_x, at_y)].sum) > limit) return true;
    }
  }
  return false;
}

// Scores suspects of a template exactly and appends to the candidates those that score min_score or more and precede
// their neighbours in the tie order. SUM_WARPS warps; this is number `warp` of them. The list is empty afterwards.
//
// Each suspect's rows are shared out among warps, as long as there are enough of them. exact: zeros, and so afterwards.
__device__ __forceinline__ void settle(const Launch& launch, const Search& search, const Pattern& numbers,
                                       const unsigned* words, unsigned tag, Suspects& list, const unsigned char* tile,
                                       int tile_pitch, int rows, int left, int top, int warp, unsigned* exact) {
  const int count = min(list.count, MAX_SUSPECTS);
  if (count == 0) return;
  const int lane = threadIdx.x % 32;
  const int w = search.w, h = search.h;
  const Image& frame = launch.frame;
  const int columns = (w + 3) / 4, at_once = quotient(32, columns), lane_row = quotient(lane, columns);
  const int column = lane - lane_row * columns;
  const int strips = max(quotient(SUM_WARPS, count), 1), strip_rows = quotient(h + 2 + strips - 1, strips);
  words += column;
  const unsigned mask = 0xffffffffu >> (32 - 8 * min(w - 4 * column, 4));
  for (int item = warp; item < count * strips; item += SUM_WARPS) {
    const int number = quotient(item, strips);
    const int first = (item - number * strips) * strip_rows - 1, end = min(first + strip_rows, h + 1);
    // The pixel before the window's first, in the tile, or in the frame where a neighbour's window leaves the tile. Neighbours
    // outside the frame do not count, whatever is read for them.
    const int at_x = int(list.at[number] & 0xffff), at_y = int(list.at[number] >> 16);
    const bool is_in_tile = at_x > 0 && at_x < TILE_X - 1 && at_y > 0 && at_y < rows - 1;
    const unsigned* image_words = reinterpret_cast<const unsigned*>(is_in_tile ? tile : frame.pixels);
    const int pitch = is_in_tile ? tile_pitch : frame.pitch, image_rows = is_in_tile ? rows + h - 1 : frame.height;
    const int x = (is_in_tile ? at_x : search.left + left + at_x) - 1, y = is_in_tile ? at_y : search.top + top + at_y;
    // Counted in words: frames of 2^31 bytes or more have less than 2^31 of these.
    const int pitch_words = pitch / 4, shift = (x & 3) * 8, last_word = pitch_words * image_rows - 1;
    NineWindows windows;
    if (lane < at_once * columns) {
#pragma unroll 2
      for (int j = first + lane_row; j < end; j += at_once) {
        const int row = min(max(y + j, 0), image_rows - 1), word = row * pitch_words + (x >> 2) + column;
        unsigned image[3], pattern[3];
        bool is_there[3];
#pragma unroll
        for (int i = 0; i < 3; i++) {
          image[i] = image_words[min(max(word + i, 0), last_word)];
          // The image's row j meets the template's row j + 1 at the position above.
          const int of = j + 1 - i;
          is_there[i] = of >= 0 && of < h;
          pattern[i] = is_there[i] ? __ldg(words + of * columns) : 0;
        }
        windows.add(__funnelshift_r(image[0], image[1], shift), __funnelshift_r(image[1], image[2], shift), mask, pattern,
                    is_there);
      }
    }
    const unsigned mine = windows.of_warp(lane);
    if (lane < EXACT_SUMS) atomicAdd(&exact[number * EXACT_SUMS + lane], mine);
  }
  sync_sum_warps();
  for (int number = warp; number < count; number += SUM_WARPS) {
    unsigned total = 0;
    if (lane < EXACT_SUMS) {
      total = exact[number * EXACT_SUMS + lane];
      exact[number * EXACT_SUMS + lane] = 0;
    }
    const int x = left + int(list.at[number] & 0xffff), y = top + int(list.at[number] >> 16);
    report_peak(numbers, total, x, y, search.width, search.height, launch.min_score_exact, tag, launch.candidates,
                launch.capacity, launch.count);
  }
  sync_sum_warps();
  if (warp == 0 && lane == 0) list.count = list.is_more = 0;
}
