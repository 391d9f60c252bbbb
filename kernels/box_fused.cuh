// The box thresholds (mean, Sauvola, Niblack) in one pass: the frame is read once, the mask written once, and
// all sums stay in shared memory. The same bytes as the kernels of threshold.cu, whose formulas these are.
//
// A block of BOX_THREADS threads makes a tile of the mask, SEGMENT_PIXELS * segments wide and shares.rows
// high:
//
//   1. It loads the tile with its halo, radius pixels on each side, in pieces of 16 bytes.
//   2. It slides windows of one column down: sums[y][x] is the sum of I over `block` rows. A thread has four
//      columns, two in a register, for a window of one column is below 2^16, and a run of rows. Where the
//      block is much higher than a run, runs are summed first, each once, and a window starts with whole
//      runs.
//   3. It slides along the rows: a thread has SEGMENT_PIXELS of one row, the next thread the row below. The
//      mask takes the place of the pixels, and each warp writes what its lanes made, in pieces of 16 bytes.
//
// Squares are summed in the same way in 32 bits. Grid: (width / (SEGMENT_PIXELS * segments), height / rows)
// rounded up; rows * segments is at most BOX_THREADS, segments at most BOX_WIDTH / SEGMENT_PIXELS.
//
// A rule's verdict() is negative if pixel `i` of the word is above the threshold, s having begun at start().
// SQUARES: it needs SS; then it may be unsure, and its `exact` decides.
//
// Shared memory: see Tiling::box_tiles in crates/lockon-cuda/src/fused.rs.
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#pragma once

#include "fused_tile.cuh"

// Threads of a block. Other numbers were not measured.
constexpr int BOX_THREADS = 256;

// Largest width of a block's tile of the mask: three times SEGMENT_PIXELS.
constexpr int BOX_WIDTH = 192;

// Pixels of a row that a thread compares. Other numbers were not measured.
constexpr int SEGMENT_PIXELS = 64;

// Bytes from row to row of the halo: a number in the instructions that go from row to row, and an odd
// multiple of 16. It has room for a tile BOX_WIDTH wide with the halo of blocks up to 127; larger blocks have
// narrower tiles.
constexpr int HALO_PITCH = 336;
constexpr int HALO_WORDS = HALO_PITCH / 4;

// Shared memory: the halo, the sums, the squares if a rule needs them, the sums of runs.
extern __shared__ uint4 shared[];

// Sums of four neighbouring columns: two in a register, and their squares.
template <bool SQUARES>
struct Columns {
  uint2 sums = {0, 0};
  uint4 squares = {0, 0, 0, 0};

  static __device__ __forceinline__ unsigned low(unsigned pair) { return pair & 0xffff; }
  static __device__ __forceinline__ unsigned high(unsigned pair) { return pair >> 16; }

  // Wraps and carries into a neighbour cancel when the sums are complete.
  __device__ __forceinline__ void add(unsigned word) {
    const unsigned left = pick(word, 0, 0x4140), right = pick(word, 0, 0x4342);
    sums.x += left;
    sums.y += right;
    if (SQUARES) {
      squares.x += low(left) * low(left);
      squares.y += high(left) * high(left);
      squares.z += low(right) * low(right);
      squares.w += high(right) * high(right);
    }
  }
  __device__ __forceinline__ void subtract(unsigned word) {
    const unsigned left = pick(word, 0, 0x4140), right = pick(word, 0, 0x4342);
    sums.x -= left;
    sums.y -= right;
    if (SQUARES) {
      squares.x -= low(left) * low(left);
      squares.y -= high(left) * high(left);
      squares.z -= low(right) * low(right);
      squares.w -= high(right) * high(right);
    }
  }
};

// Adds `rows` rows, by four: all loads of four are under way at once.
template <bool SQUARES>
__device__ __forceinline__ void add_rows(Columns<SQUARES>& columns, const unsigned* word, int rows) {
#pragma unroll 1
  for (; rows >= 4; rows -= 4, word += 4 * HALO_WORDS) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; i++) words[i] = word[i * HALO_WORDS];
#pragma unroll
    for (int i = 0; i < 4; i++) columns.add(words[i]);
  }
#pragma unroll 1
  for (; rows > 0; rows--, word += HALO_WORDS) columns.add(*word);
}

// Step 2, from the word in the halo that the window of the mask's first pixel starts in.
template <bool SQUARES>
__device__ __forceinline__ void slide_down(const unsigned* halo, unsigned char* sums, int sums_pitch,
                                           unsigned char* squares, int squares_pitch, unsigned char* of_runs,
                                           const Shares& shares, int block) {
  const int height = shares.rows.by, groups = shares.groups.by, run = shares.run, whole = shares.runs_in_window;
  const int worker = shares.groups.quotient(threadIdx.x), group = threadIdx.x - worker * groups;
  const bool is_idle = (worker + 1) * groups > BOX_THREADS;
  uint4* const run_squares = reinterpret_cast<uint4*>(of_runs);
  uint2* const run_sums = reinterpret_cast<uint2*>(of_runs + (SQUARES ? 16 * shares.runs * groups : 0));
  if (whole > 0) {
    for (int i = threadIdx.x; i < shares.runs * groups; i += BOX_THREADS) {
      const int y = shares.groups.quotient(i);
      const unsigned* word = halo + y * run * HALO_WORDS + (i - y * groups);
      Columns<SQUARES> all;
      add_rows(all, word, run);
      run_sums[i] = all.sums;
      if (SQUARES) run_squares[i] = all.squares;
    }
    // A window starts with runs that other threads summed.
    __syncthreads();
  }
  const int first = worker * run, rows = min(run, height - first);
  if (is_idle || rows <= 0) return;
  Columns<SQUARES> window;
#pragma unroll 4
  for (int i = 0; i < whole; i++) {
    const uint2 more = run_sums[(worker + i) * groups + group];
    window.sums.x += more.x;
    window.sums.y += more.y;
    if (SQUARES) {
      const uint4 squares = run_squares[(worker + i) * groups + group];
      window.squares.x += squares.x;
      window.squares.y += squares.y;
      window.squares.z += squares.z;
      window.squares.w += squares.w;
    }
  }
  const unsigned *leaves = halo + first * HALO_WORDS + group, *enters = leaves + whole * run * HALO_WORDS;
  const int left = block - whole * run;
  add_rows(window, enters, left);
  enters += left * HALO_WORDS;
  sums += first * sums_pitch + 8 * group;
  squares += first * squares_pitch + 16 * group;
  *reinterpret_cast<uint2*>(sums) = window.sums;
  if (SQUARES) *reinterpret_cast<uint4*>(squares) = window.squares;
  const auto slide = [&](unsigned entering, unsigned leaving) {
    window.add(entering);
    window.subtract(leaving);
    sums += sums_pitch;
    squares += squares_pitch;
    *reinterpret_cast<uint2*>(sums) = window.sums;
    if (SQUARES) *reinterpret_cast<uint4*>(squares) = window.squares;
  };
  // Four at a time, loaded before the first is stored.
  int more = rows - 1;
#pragma unroll 1
  for (; more >= 4; more -= 4, enters += 4 * HALO_WORDS, leaves += 4 * HALO_WORDS) {
    unsigned entering[4], leaving[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      entering[i] = enters[i * HALO_WORDS];
      leaving[i] = leaves[i * HALO_WORDS];
    }
#pragma unroll
    for (int i = 0; i < 4; i++) slide(entering[i], leaving[i]);
  }
#pragma unroll 1
  for (; more > 0; more--, enters += HALO_WORDS, leaves += HALO_WORDS) slide(*enters, *leaves);
}

// Eight 16-bit numbers, and eight of 32 bits.
struct Eight {
  unsigned pairs[4];
};
struct WideEight {
  unsigned numbers[8];
};

__device__ __forceinline__ Eight eight(const uint4* from) {
  const uint4 pairs = *from;
  return {{pairs.x, pairs.y, pairs.z, pairs.w}};
}
__device__ __forceinline__ WideEight wide_eight(const uint4* from) {
  const uint4 low = from[0], high = from[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

// A window that slides along a row: S, SS, and where it is.
struct Window {
  int s;
  unsigned ss;
};

// Decides eight pixels one by one, after one of them was unsure. sums and squares start at the window of the
// first, whose sums are `window`.
template <class Exact>
__device__ __noinline__ uint2 settle(Exact exact, const unsigned short* sums, const unsigned* squares, Window window,
                                     uint2 pixels, int block) {
  unsigned long long mask = 0;
#pragma unroll 1
  for (int i = 0; i < 8; i++) {
    const unsigned word = (i < 4 ? pixels.x : pixels.y) >> (8 * (i % 4));
    if (exact.is_above(word & 255, window.s, window.ss)) mask |= 255ull << (8 * i);
    window.s += sums[i + block] - sums[i];
    window.ss += squares[i + block] - squares[i];
  }
  return {unsigned(mask), unsigned(mask >> 32)};
}

// Step 3 for a segment, whose first window starts LEAD numbers into sums and squares. LEAD is the radius'
// distance to the next multiple of four, and determines END, the place in an eight at which a window ends.
template <int LEAD, class Rule>
__device__ __forceinline__ void slide_right(Rule rule, const uint4* sums, const uint4* squares, uint4* pixels,
                                            int block, unsigned flip) {
  constexpr bool SQUARES = Rule::SQUARES;
  constexpr int END = (LEAD + 2 * ((4 - LEAD) % 4) + 1) % 8;
  const int whole = (LEAD + block) / 8;
  Window window = {rule.start(), 0};
  Eight begin = eight(sums), end = eight(sums + whole);
  WideEight wide_begin = {}, wide_end = {};
  if (SQUARES) {
    wide_begin = wide_eight(squares);
    wide_end = wide_eight(squares + 2 * whole);
  }
#pragma unroll 4
  for (int i = 0; i < whole; i++) {
    const Eight all = eight(sums + i);
#pragma unroll
    for (int j = 0; j < 4; j++) window.s = add_pair(window.s, all.pairs[j], 0x0101);
    if (SQUARES) {
      const WideEight wide = wide_eight(squares + 2 * i);
#pragma unroll
      for (int j = 0; j < 8; j++) window.ss += wide.numbers[j];
    }
  }
#pragma unroll
  for (int j = 0; j < END; j++) {
    window.s = add_pair(window.s, end.pairs[j / 2], j % 2 == 0 ? 0x0001 : 0x0100);
    if (SQUARES) window.ss += wide_end.numbers[j];
  }
#pragma unroll
  for (int j = 0; j < LEAD; j++) {
    window.s = add_pair(window.s, begin.pairs[j / 2], j % 2 == 0 ? 0x00ff : 0xff00);
    if (SQUARES) window.ss -= wide_begin.numbers[j];
  }
#pragma unroll 1
  for (int half = 0; half < SEGMENT_PIXELS / 16; half++) {
    const uint4 words = pixels[half];
    uint2 results[2];
#pragma unroll
    for (int part = 0; part < 2; part++) {
      const int i = 2 * half + part;
      const Eight next_begin = eight(sums + i + 1), next_end = eight(sums + whole + i + 1);
      WideEight wide_next_begin = {}, wide_next_end = {};
      if (SQUARES) {
        wide_next_begin = wide_eight(squares + 2 * (i + 1));
        wide_next_end = wide_eight(squares + 2 * (whole + i + 1));
      }
      const uint2 eight_pixels = part == 0 ? uint2{words.x, words.y} : uint2{words.z, words.w};
      const Window before = window;
      bool is_unsure = false;
      int verdicts[8];
#pragma unroll
      for (int j = 0; j < 8; j++) {
        verdicts[j] = rule.verdict(j % 4, j < 4 ? eight_pixels.x : eight_pixels.y, window.s, window.ss, is_unsure);
        const int enters = END + j, leaves = LEAD + j;
        window.s = slide(window.s, (enters < 8 ? end : next_end).pairs[enters / 2 % 4], enters % 2,
                         (leaves < 8 ? begin : next_begin).pairs[leaves / 2 % 4], leaves % 2);
        if (SQUARES) {
          window.ss += (enters < 8 ? wide_end : wide_next_end).numbers[enters % 8] -
                       (leaves < 8 ? wide_begin : wide_next_begin).numbers[leaves % 8];
        }
      }
      results[part] = {spread_signs(verdicts), spread_signs(verdicts + 4)};
      if constexpr (SQUARES) {
        if (is_unsure) {
          results[part] = settle(rule.exact, reinterpret_cast<const unsigned short*>(sums + i) + LEAD,
                                 reinterpret_cast<const unsigned*>(squares + 2 * i) + LEAD, before, eight_pixels, block);
        }
      }
      begin = next_begin;
      end = next_end;
      wide_begin = wide_next_begin;
      wide_end = wide_next_end;
    }
    pixels[half] = {results[0].x ^ flip, results[0].y ^ flip, results[1].x ^ flip, results[1].y ^ flip};
  }
}

template <class Rule>
__device__ __forceinline__ void box_fused(Image image, unsigned char* mask, unsigned long long* foreground, int radius,
                                          bool inverse, const Shares& shares, Rule rule) {
  const int height = shares.rows.by, block = 2 * radius + 1;
  const Tile tile = {int(blockIdx.x) * 16 * shares.mask_pieces.by, int(blockIdx.y) * height, radius, radius};
  unsigned char* const halo = reinterpret_cast<unsigned char*>(shared);
  unsigned char* const sums = halo + HALO_PITCH * tile.rows(shares);
  const int sums_pitch = round_up_odd(8 * shares.groups.by), squares_pitch = round_up_odd(16 * shares.groups.by);
  unsigned char* const squares = sums + sums_pitch * height;
  unsigned char* const of_runs = squares + (Rule::SQUARES ? squares_pitch * height : 0);
  const auto place = [](int y) { return y; };

  load_tile(image, tile, shares, halo, HALO_PITCH, place);

  slide_down<Rule::SQUARES>(reinterpret_cast<const unsigned*>(halo) + tile.lead() / 4, sums, sums_pitch,
                                      squares, squares_pitch, of_runs, shares, block);
  // A thread slides along sums that others made.
  __syncthreads();

  constexpr int PIECES = SEGMENT_PIXELS / 16;
  const int segments = shares.mask_pieces.by / PIECES;
  const auto pixels_of = [=](int segment, int y) {
    return halo + (y + radius) * HALO_PITCH + tile.inner() + segment * SEGMENT_PIXELS;
  };
  const int segment = shares.rows.quotient(threadIdx.x), y = threadIdx.x - segment * height;
  if (segment < segments) {
    const uint4* row = reinterpret_cast<const uint4*>(sums + y * sums_pitch) + segment * (SEGMENT_PIXELS / 8);
    const uint4* row_squares =
        reinterpret_cast<const uint4*>(squares + y * squares_pitch) + segment * (SEGMENT_PIXELS / 4);
    uint4* pixels = reinterpret_cast<uint4*>(pixels_of(segment, y));
    const unsigned flip = inverse ? 0xffffffffu : 0;
    switch (-radius & 3) {
      case 0: slide_right<0>(rule, row, row_squares, pixels, block, flip); break;
      case 1: slide_right<1>(rule, row, row_squares, pixels, block, flip); break;
      case 2: slide_right<2>(rule, row, row_squares, pixels, block, flip); break;
      default: slide_right<3>(rule, row, row_squares, pixels, block, flip); break;
    }
  }
  // PIECES neighbouring lanes store the pixels of one lane, so that they fill whole sectors of memory.
  __syncwarp();
  wait_for_launches_before();
  const Mask to(mask, image);
  int count = 0;
#pragma unroll
  for (int i = 0; i < PIECES; i++) {
    const int maker = (threadIdx.x & ~31) + (32 * i + threadIdx.x % 32) / PIECES, piece = threadIdx.x % PIECES;
    const int segment = shares.rows.quotient(maker), y = maker - segment * height;
    if (segment < segments) {
      count += to.store(tile.left + SEGMENT_PIXELS * segment + 16 * piece, tile.top + y,
                        pixels_of(segment, y) + 16 * piece);
    }
  }
  add_block(foreground, -count);
}

