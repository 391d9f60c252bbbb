// The parts of ncc_wgmma.cu beside multiplying: arguments of a launch, window sums of a tile, bounds of
// scores, exact scores. The part for all peaks is in ncc_peaks.cuh.
//
// V = n SS - S S is cut off to whole multiples of 2^shift and then to f32. It is 0 only for a flat window:
// otherwise V is n - 1 or more, and 2^shift less than that. With `scale` = 2^shift (n t2 - t1 t1) / (n n), V
// scale <= W < (V + 1) scale. b is the integer below S t1 / n, with an error of the multiplication below 1/4.
// So with e = ST - b, the score lies between (e - BELOW) / sqrt(.) and (e + ABOVE) / sqrt(.), of the two
// roots the one that makes it wider, but for roundings to f32, which are below 16 units of 2^-24 together,
// relative to the bound: MARGIN, for bounds up to 4.
//
// The root of V is kept, since the test whether a score may reach a floor is then two multiplications and
// additions: ST - S t1 / n, rounded to f32, beside floor sqrt(scale) sqrt(V). V is counted less 1, and 1
// added again: of a flat window it wraps around to nearly 2^32. There ST = b but for roundings down, so that
// its score, 0, lies between the bounds, and these are below 1/1000.
//
// Oracle: that of ncc_wgmma.cu, which includes this; a_score_that_is_told_roughly_is_off_by_less_than_slack
// (crates/lockon-cuda/src/wgmma/bounds.rs) for the bounds.
#pragma once

#include "ncc_fast.cuh"
#include "wgmma.cuh"

constexpr float ABOVE = 1.0f;
constexpr float BELOW = 1.5f;

// Warps of a block that sum windows and settle suspects; they have a named barrier of their own. With the one
// that fetches A they are three warpgroups. Other numbers were not measured.
constexpr int SUM_WARPS = 11;
constexpr int SUM_BARRIER = 8;

// A template, as `prepare` of the launcher puts it into the device's memory.
struct Member {
  Pattern pattern;
  const uint4* spread;    // bands of A, see ncc_wgmma.cu
  const unsigned* words;  // `pack_template`
  unsigned mean;          // 2^24 t1 / n, rounded
  float scale;            // 2^shift (n t2 - t1 t1) / (n n)
  float rough_mean;       // t1 / n
  float root_scale;       // of scale
};
static_assert(sizeof(Member) == 64 && OFFSET(Member, spread) == 32 && OFFSET(Member, mean) == 48 &&
                  OFFSET(Member, root_scale) == 60,
              "as the host fills it");

// Bytes from a row of a tile to the next.
__device__ __forceinline__ int pitch_of(int w) { return 112 + (w + 30) / 16 * 16; }

// State of a member that the blocks of a search share; all zeros before and after.
struct Progress {
  unsigned best;  // a lower bound of the best score, ordered(f32)
  unsigned done;  // of the first member: blocks that have finished
};
static_assert(sizeof(Progress) == 8, "as the host has room for it");

// Templates of one size, and a region of `width` times `height` positions to search them in, whose first is
// at (left, top) of the frame.
struct Search {
  const Member* members;
  int left, top;
  int width, height;
  int first_block, end_block;  // of the launch
  unsigned tag;                // of the first member's candidates; those of the others follow
  unsigned short first_progress, members_count, w, h, tile_rows, across;
};
static_assert(sizeof(Search) == 48 && OFFSET(Search, left) == 8 && OFFSET(Search, tag) == 32 &&
                  OFFSET(Search, first_progress) == 36 && OFFSET(Search, across) == 46,
              "as the host fills it");

// The maximum that the parameters of a kernel have room for.
constexpr int MAX_SEARCHES = 64;

struct Launch {
  Search search[MAX_SEARCHES];  // in front: the first is in the cache soonest
  Image frame;                  // the whole: rows start at multiples of 16 bytes, and so does the next after each
  short searches;
  short shares_best;  // 0: all blocks run at about the same time, and would share it too late
  int shared_bytes;
  Progress* progress;  // of the kernels for the best position
  Candidate* candidates;
  unsigned* count;  // of candidates, also those without room
  double min_score_exact;
  unsigned capacity;
  float min_score;  // not above min_score_exact
};
static_assert(sizeof(Launch) == 3144 && OFFSET(Launch, frame) == 3072 && OFFSET(Launch, searches) == 3096 &&
                  OFFSET(Launch, shared_bytes) == 3100 && OFFSET(Launch, progress) == 3104 &&
                  OFFSET(Launch, min_score_exact) == 3128 && OFFSET(Launch, min_score) == 3140,
              "as the host fills it");

// sum + four pixels, each with its sign.
__device__ __forceinline__ int add_signed(unsigned pixels, int signs, int sum) {
  asm("dp4a.u32.s32 %0, %1, %2, %0;" : "+r"(sum) : "r"(pixels), "r"(signs));
  return sum;
}

// The numbers of a position that the epilogue needs.
struct Moments {
  float sum;   // S, exact
  float root;  // of V 2^-shift, cut off; 2^16 if flat; NaN outside the region
};

// Where all peaks are wanted, the nine lowest bits of SS stand above the bits of S in `sum`, and `root` is 1
// / root.
constexpr int SUM_BITS = 23;

__device__ __forceinline__ unsigned packed_sum(float sum) { return __float_as_uint(sum) & ((1u << SUM_BITS) - 1); }

// Bits by which V is cut off: n^2 2^14 is more than V can be, and 32 bits remain.
__device__ __forceinline__ int variance_shift(int n) { return max(2 * (32 - __clz(n - 1)) - 18, 0); }

// The error of S t1 / n - ST in f32, and 1 more: t1 / n, ST and the difference are rounded, each by at most
// 255 255 n 2^-24 < n / 256. Sums of products begin at this number, so that the result is never too high, or
// at minus it, for lower bounds (ncc_peaks.cuh).
__device__ __forceinline__ constexpr int slack_of(int n) { return 2 + 3 * n / 256; }
static_assert(slack_of(2) == 2 && slack_of(86) == 3 && slack_of(32768) == 386, "as the host's test has it (wgmma/bounds.rs)");

// S t1 / n - ST less slack, roughly. products: ST and slack.
__device__ __forceinline__ float rough_lack(int products, float sum, float rough_mean) {
  return __fmaf_rn(sum, rough_mean, -float(products));
}

// e = ST - b. products: ST and slack.
__device__ __forceinline__ int exact_rest(int products, float sum, unsigned mean, int slack) {
  return products - slack - int(__umulhi(unsigned(sum) << 8, mean));
}

// The hardware's, within 1 unit in the last place.
__device__ __forceinline__ float root(float value) {
  asm("sqrt.approx.ftz.f32 %0, %0;" : "+f"(value));
  return value;
}

// Below all scores.
constexpr float NO_BOUND = -4.0f;

// Bounds of the score of a position where ST - b is e. They are off by less than MARGIN.
__device__ __forceinline__ Bounds score_bounds(int e, float root, float scale) {
  const float wide = inverse_root(__fmul_rn(__fmul_rn(root, root), scale));
  const float narrow = inverse_root(__fmul_rn(__fmaf_rn(root, root, 1.0f), scale));
  const float least = __fadd_rn(float(e), -BELOW), most = __fadd_rn(float(e), ABOVE);
  return {__fmul_rn(least, least > 0.0f ? narrow : wide), __fmul_rn(most, most > 0.0f ? wide : narrow)};
}

// A lower bound of a positive score, in f32; for others it is 0 or less, and means nothing.
__device__ __forceinline__ float least_score(float rough_lack, int slack, float root, float scale) {
  const float narrow = inverse_root(__fmul_rn(__fmaf_rn(root, root, 1.0f), scale));
  return __fmul_rn(__fsub_rn(-2.0f * float(slack), rough_lack), narrow);
}

// Where a tile's moments lie: rows of TILE_X, in each first two of every four neighbours, then the other two,
// so that a warp writes 16 bytes a lane side by side; pairs are shuffled so that the threads of a warp that
// hold products of positions 32 apart (see ncc_wgmma.cu) read different banks.
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

// Sums of I(x + w) - I(x) and of I(x + w)^2 - I(x)^2 down some rows, for four columns x of a tile: the change
// of a window's sums when it moves to the right.
struct Differences {
  int sums[4] = {};
  // Sums of the squares that are added, and of these and those that are taken off.
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

__device__ __forceinline__ void sync_sum_warps() {
  asm volatile("barrier.cta.sync %0, %1;" ::"n"(SUM_BARRIER), "n"(SUM_WARPS * 32) : "memory");
}

// A lane's share of S and SS of the windows in column 0: those of its four columns that they have.
struct Share {
  unsigned sum = 0, squares = 0;

  __device__ __forceinline__ void add(unsigned pixels, unsigned mask) {
    sum = dot4(pixels & mask, 0x01010101u, sum);
    squares = dot4(pixels & mask, pixels, squares);
  }

  __device__ __forceinline__ void slide(unsigned enters, unsigned leaves, unsigned mask) {
    sum = dot4(enters & mask, 0x01010101u, sum) - dot4(leaves & mask, 0x01010101u, 0);
    squares = dot4(enters & mask, enters, squares) - dot4(leaves & mask, leaves, 0);
  }
};

// Four pixels a lane of each row of a tile, and four that are w columns to their right.
struct TwoColumns {
  const unsigned char* left;
  int pitch, right, after, shift;
  unsigned mask;  // of the four, those in columns below w

  __device__ __forceinline__ TwoColumns(const unsigned char* tile, int pitch, int w)
      : left(tile + threadIdx.x % 32 * 4), pitch(pitch), right(w & ~3), shift(8 * (w & 3)) {
    const int x = threadIdx.x % 32 * 4;
    after = min(x + right + 4, pitch - 4) - x;
    mask = w <= x ? 0 : 0xffffffffu >> (32 - 8 * min(w - x, 4));
  }

  __device__ __forceinline__ uint2 load(int y) const {
    const unsigned char* row = left + y * pitch;
    const unsigned low = *reinterpret_cast<const unsigned*>(row + right);
    const unsigned high = *reinterpret_cast<const unsigned*>(row + after);
    return {*reinterpret_cast<const unsigned*>(row), __funnelshift_r(low, high, shift)};
  }

  __device__ __forceinline__ void add_rows(Differences& to, Share& share, int first, int count) const {
#pragma unroll 4
    for (int j = 0; j + 1 < count; j += 2) add(to, share, load(first + j), load(first + j + 1));
    if (count & 1) add(to, share, load(first + count - 1), uint2{0, 0});
  }

 private:
  __device__ __forceinline__ void add(Differences& to, Share& share, uint2 one, uint2 two) const {
    to.add(one, two);
    share.add(one.x, mask);
    share.add(two.x, mask);
  }
};

// Moments of a tile's first `rows` rows of positions, by SUM_WARPS warps.
//
// A lane has four neighbouring columns, a warp a band of rows. Down the band slide
//   - the lanes' shares of S and SS of the window in column 0,
//   - differences between windows beside each other (`Differences`), which lead from there to the other
// columns. Where a band begins, both are put together from those of blocks of rows, which all warps sum
// before, and of the rows above and below these.
struct Bands {
  int rows;    // of a band
  int block;   // rows of a block
  int blocks;  // 0: bands do without
  int pieces;  // that a block is stored in; each takes as much room as a row of moments

  __device__ __forceinline__ Bands(const Search& search, int tile_rows)
      : rows((tile_rows + SUM_WARPS - 1) / SUM_WARPS) {
    const int h = search.h;
    // As many rows as leave room for all blocks.
    block = max(rows, 1 + quotient(h - 1 + tile_rows - 1, tile_rows));
    blocks = quotient(quotient(tile_rows - 1, rows) * rows + h, block);
    pieces = 2 * blocks <= tile_rows ? 2 : 1;
    // For low templates, a band's own rows are summed sooner.
    if (h < 2 * block || blocks > tile_rows) blocks = 0;
  }
};

// First step: the blocks, by warp number `warp`. It leaves them in `out` and, for the window in column 0, in
// `starts`.
//
// tile: pitch bytes a row, at least 127 + w columns, rows + h - 1 rows.
__device__ __forceinline__ void sum_blocks(const TwoColumns& columns, const Bands& bands, int warp, uint2* starts,
                                           Moments* out) {
  const int lane = threadIdx.x % 32;
  int4* stored = reinterpret_cast<int4*>(out) + lane;
  for (int i = warp; i < bands.pieces * bands.blocks; i += SUM_WARPS) {
    const int half = bands.pieces == 2 ? bands.block / 2 : 0, number = bands.pieces == 2 ? i / 2 : i;
    const bool is_second = number * bands.pieces != i || bands.pieces == 1;
    Differences sums;
    Share share;
    columns.add_rows(sums, share, number * bands.block + (is_second ? half : 0), is_second ? bands.block - half : half);
    sums.store(stored + i * 64);
    const uint2 start = {add_lanes(share.sum), add_lanes(share.squares)};
    if (lane == 0) starts[i] = start;
  }
}

// The moments kept for a window. mark: 0, or NaN outside the region.
template <bool ALL_PEAKS>
__device__ __forceinline__ Moments moments_of(int sum, int squares, float variance, float mark) {
  if constexpr (ALL_PEAKS) {
    return {__uint_as_float(unsigned(sum) | unsigned(squares) << SUM_BITS), __fadd_rn(inverse_root(variance), mark)};
  } else {
    return {float(sum), __fadd_rn(root(variance), mark)};
  }
}

// V - 1, cut off as said above.
template <bool IS_SMALL>
__device__ __forceinline__ float variance_of(int n, int shift, long long less, int sum, int squares) {
  if constexpr (IS_SMALL) {
    // V <= n^2 2^14 < 2^32: the lower half of both products suffices, and shift is 0. For a flat window it
    // wraps around.
    return __uint2float_rz(unsigned(n) * unsigned(squares) - 1u - unsigned(sum) * unsigned(sum));
  } else {
    const long long variance = multiply_wide(-sum, sum, multiply_wide(n, squares, less));
    return __uint2float_rz(__funnelshift_r(unsigned(variance), unsigned(variance >> 32), shift));
  }
}

// Then the moments of a band, rows first_y <= y < end_y of `rows`; those of positions outside first_x <= x <
// end_x, y < last_y are marked so.
template <bool IS_SMALL, bool ALL_PEAKS>
__device__ __forceinline__ void slide_down(const TwoColumns& columns, Differences& beside, Share& share, int n, int h,
                                           int rows, int first_y, int end_y, int first_x, int end_x, int last_y,
                                           Moments* out) {
  const int lane = threadIdx.x % 32;
  const int shift = variance_shift(n);
  const long long less = -(1ll << shift);
  const float nan = __int_as_float(0x7fffffff);
  // The summand marks columns.
  float mark[4];
#pragma unroll
  for (int i = 0; i < 4; i++) mark[i] = 4 * lane + i < first_x || 4 * lane + i >= end_x ? nan : 0.0f;
  float4* to = reinterpret_cast<float4*>(out + moments_slot(4 * lane, first_y));
  float4* to_others = reinterpret_cast<float4*>(out + moments_slot(4 * lane + 2, first_y));
  const int inside = min(end_y, last_y);
#pragma unroll 2
  for (int y = first_y; y < inside; y++) {
    // From column 0 to the lane's first, then on.
    unsigned s[4], ss[4];
    s[0] = ss[0] = 0;
#pragma unroll
    for (int i = 1; i < 4; i++) {
      s[i] = s[i - 1] + beside.sums[i - 1];
      ss[i] = ss[i - 1] + beside.square(i - 1);
    }
    unsigned before = s[3] + beside.sums[3], before_squares = ss[3] + beside.square(3);
    const unsigned own = before, own_squares = before_squares;
    const unsigned start = add_lanes(share.sum), start_squares = add_lanes(share.squares);
    // For the next row, fetched early; unused after the last.
    const int leaving = min(y, rows - 2);
    const uint2 enters = columns.load(leaving + h), leaves = columns.load(leaving);
    beside.slide(enters, leaves);
    share.slide(enters.x, leaves.x, columns.mask);
    add_lanes_before(before, before_squares);
    before += start - own;
    before_squares += start_squares - own_squares;
    Moments moments[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int sum = int(before + s[i]), squares = int(before_squares + ss[i]);
      const float variance = __fadd_rn(variance_of<IS_SMALL>(n, shift, less, sum, squares), 1.0f);
      moments[i] = moments_of<ALL_PEAKS>(sum, squares, variance, mark[i]);
    }
    *to = {moments[0].sum, moments[0].root, moments[1].sum, moments[1].root};
    *to_others = {moments[2].sum, moments[2].root, moments[3].sum, moments[3].root};
    to += TILE_X / 2;
    to_others += TILE_X / 2;
  }
  for (int y = max(first_y, last_y); y < end_y; y++) {
    *to = *to_others = {0.0f, nan, 0.0f, nan};
    to += TILE_X / 2;
    to_others += TILE_X / 2;
  }
}

// Both steps.
template <bool ALL_PEAKS>
__device__ __forceinline__ void sum_windows(const unsigned char* tile, int pitch, const Search& search, int rows, int warp,
                                            int first_x, int end_x, int last_y, uint2* starts, Moments* out) {
  const int lane = threadIdx.x % 32;
  const int w = search.w, h = search.h, n = w * h;
  const TwoColumns columns(tile, pitch, w);
  const Bands bands(search, rows);
  const int first_y = warp * bands.rows, end_y = min(first_y + bands.rows, rows);
  Differences beside;
  Share share;
  if (bands.blocks > 0) {
    sum_blocks(columns, bands, warp, starts, out);
    sync_sum_warps();
    if (first_y < end_y) {
      const int4* stored = reinterpret_cast<const int4*>(out) + lane;
      const int first = quotient(first_y + bands.block - 1, bands.block), end = quotient(first_y + h, bands.block);
      columns.add_rows(beside, share, first_y, first * bands.block - first_y);
#pragma unroll 1
      for (int i = first * bands.pieces; i < end * bands.pieces; i++) {
        beside.add(stored + i * 64);
        // A lane may have another lane's share.
        if (i % 32 == lane) {
          const uint2 start = starts[i];
          share.sum += start.x;
          share.squares += start.y;
        }
      }
      columns.add_rows(beside, share, end * bands.block, first_y + h - end * bands.block);
    }
    // Moments take the blocks' place.
    sync_sum_warps();
  } else if (first_y < end_y) {
    columns.add_rows(beside, share, first_y, h);
  }
  if (first_y >= end_y) return;
  if (n <= 512) {
    slide_down<true, ALL_PEAKS>(columns, beside, share, n, h, rows, first_y, end_y, first_x, end_x, last_y, out);
  } else {
    slide_down<false, ALL_PEAKS>(columns, beside, share, n, h, rows, first_y, end_y, first_x, end_x, last_y, out);
  }
}

// Suspects of a warpgroup's tile on their way to the warps that settle them, where only the best position is
// wanted.
constexpr int MAX_SUSPECTS = 16;
struct GroupSuspects {
  unsigned count;             // also positions without room
  unsigned is_more;           // another list follows for the same template
  unsigned best;              // a lower bound of the best score, ordered(f32)
  unsigned at[MAX_SUSPECTS];  // in the tile: x in the low, y in the high half
  float most[MAX_SUSPECTS];   // their scores are not higher
};

// The suspects that may be the best, from the lists of those warpgroups that are in `open`.
template <int GROUPS>
struct Survivors {
  unsigned in_list[GROUPS];  // by bits
  int count = 0;

  // Selects those that reach `floor`.
  __device__ __forceinline__ Survivors(const GroupSuspects (&lists)[GROUPS], unsigned open, float floor, int lane) {
    const int slot = min(lane, MAX_SUSPECTS - 1);
#pragma unroll
    for (int group = 0; group < GROUPS; group++) {
      const int listed = open >> group & 1 ? min(int(lists[group].count), MAX_SUSPECTS) : 0;
      in_list[group] = __ballot_sync(ALL_LANES, lane < listed && lists[group].most[slot] >= floor);
      count += __popc(in_list[group]);
    }
  }

  // The place of number `i`.
  __device__ __forceinline__ unsigned at(const GroupSuspects (&lists)[GROUPS], int i) const {
    int list = 0;
    unsigned left = in_list[0];
#pragma unroll
    for (int group = 1; group < GROUPS && i >= __popc(left); group++) {
      i -= __popc(left);
      left = in_list[group];
      list = group;
    }
    for (; i > 0; i--) left &= left - 1;
    return lists[list].at[__ffs(left) - 1];
  }
};

// Scores the suspects of open lists exactly and appends to the candidates those that score min_score or more
// and precede their neighbours in the tie order. By SUM_WARPS warps; this is number `warp`. The lists are
// empty afterwards.
//
// Warps share the rows of each suspect, if there are enough rows. exact: zeros before and afterwards.
template <int GROUPS>
__device__ __forceinline__ void settle_lists(const Launch& launch, const Search& search, const Pattern* patterns,
                                             const unsigned* words, unsigned tag, GroupSuspects (&lists)[GROUPS],
                                             unsigned open, float floor, const unsigned char* tile, int left, int top,
                                             int warp, unsigned* exact) {
  // Loaded again each time: otherwise values computed from it occupy registers, and others are spilled.
  int lane;
  asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
  const Survivors<GROUPS> survivors(lists, open, floor, lane);
  const int count = survivors.count;
  const int w = search.w, h = search.h, rows = search.tile_rows, tile_pitch = pitch_of(w);
  const Image& frame = launch.frame;
  const int strips = max(quotient(SUM_WARPS, max(count, 1)), 1), strip_rows = quotient(h + 2 + strips - 1, strips);
  for (int item = warp; item < count * strips; item += SUM_WARPS) {
    const int number = quotient(item, strips), strip = item - number * strips;
    const unsigned place = survivors.at(lists, number);
    const int at_x = int(place & 0xffff), at_y = int(place >> 16);
    // Reads from the frame where a neighbour's window leaves the tile.
    const bool is_in_tile = at_x > 0 && at_x < TILE_X - 1 && at_y > 0 && at_y < rows - 1;
    const Around around = is_in_tile ? Around(tile, tile_pitch, rows + h - 1, at_x, at_y)
                                     : Around(frame.pixels, frame.pitch, frame.height, search.left + left + at_x,
                                              search.top + top + at_y);
    NineWindows windows;
    add_rows<1>(windows, around, w, h, strip * strip_rows - 1, (strip + 1) * strip_rows - 1, words);
    const unsigned mine = windows.of_warp(lane);
    if (lane < EXACT_SUMS) atomicAdd(&exact[number * EXACT_SUMS + lane], mine);
  }
  sync_sum_warps();
  if (warp == 0 && lane < GROUPS && (open >> lane & 1)) lists[lane].count = lists[lane].is_more = lists[lane].best = 0;
  for (int number = warp; number < count; number += SUM_WARPS) {
    unsigned total = 0;
    if (lane < EXACT_SUMS) {
      total = exact[number * EXACT_SUMS + lane];
      exact[number * EXACT_SUMS + lane] = 0;
    }
    const unsigned place = survivors.at(lists, number);
    const int x = left + int(place & 0xffff), y = top + int(place >> 16);
    score_peak(patterns[tag % 2], total, x, y, search.width, search.height, launch.min_score_exact, tag, launch.candidates,
               launch.capacity, launch.count);
  }
}
