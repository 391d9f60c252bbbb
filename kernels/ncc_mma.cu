// target: compute_75, compute_80
//
// NCC on the tensor cores by `mma.sync`, which every device from compute capability 7.5 on has.
//
// Two ways through it. `ncc_mma_64` and `ncc_mma_32` match a region with one small unmasked template in one
// launch, and leave suspects for `settle`: formulas are those of ncc_fast.cuh. `ncc_mma_products` sums the
// products of a template of any size, masked or not, into a map, which the kernels of ncc.cu turn into scores
// and peaks.
//
// Products. ST(x, y) = sum over i, j of T(i, j) I(x + i, y + j) becomes a product of matrices D = A B, 16 by
// 8 by 32 an instruction (u8, sums of 32 bits), by letting the rows of D be 16 neighbouring x:
//
//   A[dx][k] = T(k - dx, j)          a band: row j of the template, moved right by dx; zeros elsewhere
//   B[k][n]  = I(16 n + k, y + j)    16 of the image's pixels from x = 16 n on
//   D[dx][n] = ST(16 n + dx, y)      summed over the template's rows j and all k from 0 to w + 14
//
// so that one D is a row of 128 positions. The two halves of the 32 products are 16 columns k (a chunk, of
// which a template takes C = (w + 30) / 16) of row j and the same columns of row j + 1. For half a B a lane
// holds four neighbouring pixels, and a warp 128 neighbouring bytes of one row of the tile: B needs no
// rearranging, and no two lanes share a bank. A warp has Y rows of positions. It uses four rows of the
// template at a time, whose A stays in registers, and moves down the tile by two rows of the image. Such a
// pair of rows is one register for all positions: with pairs of template rows that begin at even rows it
// gives even positions, with those that begin at odd rows odd ones.
//
// A lane's words of A begin at any byte of a row of the template. So rows lie four times in memory, the later
// copies moved left by a byte each (`spread_template`): 16 zeros, w pixels, zeros. Copies lie P words apart,
// P = 8 or 24 modulo 32, which puts a lane's words of A in banks of their own.
//
// Launch of ncc_mma_64 and ncc_mma_32 (Y = 16 and 8, TILE = 4 Y rows of positions):
//
//   grid        ((left % 16 + width) / 128, height / TILE), rounded up; width and height count positions
//   block       256: two warps multiply the same Y rows of positions with one half of the template's rows
//               each, then each takes over half of the positions
//   piece_rows  a multiple of 4: rows of the template that lie in shared memory at a time
//   shared      (112 + 16 C)(TILE + H) + max(16 P (piece_rows + 1), 512 TILE + 8 * 2624)
//               with H = h rounded up to whole fours
//   spread      H rows of 4 copies of P words, aligned to 16
//
// Limits: w <= 128, w h <= 32768 (products stay below 2^31, S below 2^23), not flat; frame.pixels and
// frame.pitch multiples of 16, the region within the frame. `settle` is launched after it in the same stream.
//
// Tried on an H200 with 64x64 in 1080p: every other block of a multiprocessor begins with its window sums, so
// that the tensor cores have work meanwhile. That took 37.9 us instead of 39.0, but the second plane that it
// needs cost more.
//
// Oracle: crates/lockon-core/src/reference/ncc.rs, in crates/lockon-cuda/src/tests.rs:
// scores_and_matches_of_2100_random_searches_are_those_of_the_definition,
// each_kernel_at_the_edges_of_its_tiles_ncc_mma_for_7_5 and ..._for_8_0.
#include "ncc_suspects.cuh"
#include "packed.cuh"

extern __shared__ __align__(16) unsigned char shared[];

// The search of ncc_mma_64 and ncc_mma_32.
struct Search {
  Sought sought;
  unsigned mean;  // 2^24 t1 / n, to the nearest
  float factor;   // (n t2 - t1 t1) / (n n)
  float min_score;
  int all_peaks;  // 0: only the best position is wanted
};
static_assert(sizeof(Search) == 112 && OFFSET(Search, mean) == 96 && OFFSET(Search, min_score) == 104,
              "as the host fills it");

// Warps of a block that have rows of positions of their own. In ncc_mma_64 and ncc_mma_32 there are twice as
// many: the other four multiply the same rows with the other half of the template.
constexpr int MMA_WARPS = 4;
constexpr int MMA_THREADS = MMA_WARPS * 32;
constexpr int MATCH_THREADS = 2 * MMA_THREADS;

// Blocks of these two that a multiprocessor must have room for, and copies that a thread of ncc_mma_products
// starts together. The code for 7.5 has room for two blocks anyway, and its copies wait in registers.
#if __CUDA_ARCH__ >= 800
constexpr int MATCH_BLOCKS = 2;
constexpr int COPIES = 1;
#else
constexpr int MATCH_BLOCKS = 1;
constexpr int COPIES = 4;
#endif

// Pieces of a template that ncc_mma_products takes at a time: so many chunks and rows. A block takes
// MOST_PIECES at most: 65025 * 15 * 128 * 33 is below 2^32, as far as its sums reach (33, for of odd
// positions the last piece has a row more).
constexpr int PIECE_CHUNKS = 8;
constexpr int PIECE_ROWS = 32;
constexpr int MOST_PIECES = 15;
static_assert(255ll * 255 * MOST_PIECES * 16 * PIECE_CHUNKS * (PIECE_ROWS + 1) < 1ll << 32, "sums fit");

// Layout of the map of a masked template: sums of products in the low bits, those of the squares' low bytes
// above.
constexpr int LOW_BYTES_SHIFT = 36;

// Words from a copy of a row of the template to the next, for so many chunks.
__device__ __forceinline__ constexpr int copy_pitch(int chunks) { return (4 * chunks + 11) / 16 * 16 + 8; }
static_assert(copy_pitch(1) == 8 && copy_pitch(2) == 24 && copy_pitch(5) == 24 && copy_pitch(9) == 40,
              "as `copy_pitch` of the host");

// d += A B: 16 by 8 sums of 32 products. a[0], a[1]: rows lane / 4 and lane / 4 + 8 of A, its first 16
// columns; a[2], a[3]: its last 16. b: the first and the last 16 rows of B.
__device__ __forceinline__ void multiply_bytes(unsigned (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
#pragma unroll
  for (int i = 0; i < 4; i++) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[i % 2 * 2]), "+r"(d[i % 2 * 2 + 1])
        : "r"(a[i]), "r"(i < 2 ? b0 : b1));
  }
#endif
}

// Copies 16 bytes from device to shared memory, or fills with zeros; `finish_copies` waits for them.
__device__ __forceinline__ void copy_16(void* to, const void* from, bool is_there) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(unsigned(__cvta_generic_to_shared(to))), "l"(from),
               "r"(is_there ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(to) = is_there ? __ldg(static_cast<const uint4*>(from)) : make_uint4(0, 0, 0, 0);
#endif
}

__device__ __forceinline__ void finish_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// The factor: pixels, or the low or the high bytes of their squares.
enum Plane : int { PIXELS, LOW_BYTES, HIGH_BYTES };

__device__ __forceinline__ unsigned square_bytes(unsigned word, Plane plane) {
  unsigned square[4];
#pragma unroll
  for (int i = 0; i < 4; i++) square[i] = pick(word, 0, 0x4440 + i) * pick(word, 0, 0x4440 + i);
  const unsigned first = pick(square[0], square[1], 0x5410), second = pick(square[2], square[3], 0x5410);
  return pick(first, second, plane == LOW_BYTES ? 0x6420 : 0x7531);
}

// Copies `rows` rows of `quads` times 16 bytes of the frame, from (byte, y) on; byte is a multiple of 16.
// Outside: zeros.
template <int THREADS>
__device__ __forceinline__ void load_tile(unsigned char* tile, const Image& frame, int byte, int y, int quads, int rows,
                                          Plane plane) {
  const int quad = threadIdx.x % 16, column = byte + 16 * quad;
  if (quad >= quads) return;
  unsigned char* to = tile + 16 * quad;
#pragma unroll (THREADS == MATCH_THREADS ? 4 : COPIES)
  for (int row = threadIdx.x / 16; row < rows; row += THREADS / 16) {
    const bool is_there = column < frame.pitch && y + row < frame.height;
    const unsigned char* from = is_there ? frame.pixels + size_t(y + row) * frame.pitch + column : frame.pixels;
    void* place = to + row * quads * 16;
    if (plane == PIXELS) {
      copy_16(place, from, is_there);
    } else {
      const uint4 value = is_there ? __ldg(reinterpret_cast<const uint4*>(from)) : make_uint4(0, 0, 0, 0);
      *static_cast<uint4*>(place) = {square_bytes(value.x, plane), square_bytes(value.y, plane),
                                     square_bytes(value.z, plane), square_bytes(value.w, plane)};
    }
  }
}

// Copies `chunks` chunks of `rows` rows of the spread template, from the row before `first_row` on, which is
// zeros where there is none. The template's copies lie `pitch` words apart.
template <int THREADS>
__device__ __forceinline__ void load_pattern(unsigned* to, const unsigned* spread, int pitch, int chunks, int first_row,
                                             int rows) {
  const int quads = chunks + 1, to_pitch = copy_pitch(chunks);
  const int step = THREADS / quads;
  // Threads that are left over when quads are divided among them do nothing.
  if (threadIdx.x >= step * quads) return;
  const int quad = threadIdx.x % quads, before = 4 * (first_row - 1);
#pragma unroll (THREADS == MATCH_THREADS ? 4 : COPIES)
  for (int copy = threadIdx.x / quads; copy < 4 * (rows + 1); copy += step) {
    const bool is_there = before + copy >= 0;
    copy_16(to + copy * to_pitch + 4 * quad, spread + (is_there ? size_t(before + copy) * pitch + 4 * quad : 0), is_there);
  }
}

// Where a lane's words of A begin.
__device__ __forceinline__ int lane_in_pattern(int chunks) {
  const int g = threadIdx.x % 32 / 4;
  return (8 - g) % 4 * copy_pitch(chunks) + threadIdx.x % 4 + 4 - (g + 3) / 4;
}

// Adds to d the products of `rows` rows of a template (a multiple of 4) with Y rows of positions. image: the
// lane's first pixel of the first row; pattern: its first word of the row before. Pairs that begin one row
// below odd positions leave out the last row of the template, which `add_last_row` adds where the template
// ends.
template <int Y>
__device__ __forceinline__ void add_products(unsigned (&d)[Y][4], const unsigned char* image, int pitch,
                                             const unsigned* pattern, int chunks, int rows) {
  const int row_words = 4 * copy_pitch(chunks);
  for (int j = 0; j < rows; j += 4) {
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; chunk++) {
      unsigned even[2][4], odd[2][4];
#pragma unroll
      for (int i = 0; i < 5; i++) {
        const unsigned* words = pattern + i * row_words + 4 * chunk;
        const unsigned first = words[0], second = words[-2];
        if (i < 4) odd[i / 2][i % 2 * 2] = first, odd[i / 2][i % 2 * 2 + 1] = second;
        if (i > 0) even[(i - 1) / 2][(i - 1) % 2 * 2] = first, even[(i - 1) / 2][(i - 1) % 2 * 2 + 1] = second;
      }
      const unsigned char* at = image + 16 * chunk;
#pragma unroll
      for (int k = 0; k <= Y / 2; k++, at += 2 * pitch) {
        const unsigned here = *reinterpret_cast<const unsigned*>(at), below = *reinterpret_cast<const unsigned*>(at + pitch);
        if (k < Y / 2) {
          multiply_bytes(d[2 * k], even[0], here, below);
          multiply_bytes(d[2 * k + 1], odd[0], here, below);
        }
        if (k > 0) {
          multiply_bytes(d[2 * k - 2], even[1], here, below);
          multiply_bytes(d[2 * k - 1], odd[1], here, below);
        }
      }
    }
    image += 4 * pitch;
    pattern += 4 * row_words;
  }
}

// Adds the products of the last row, for odd positions. image, pattern: as they are after the rows before.
template <int Y>
__device__ __forceinline__ void add_last_row(unsigned (&d)[Y][4], const unsigned char* image, int pitch,
                                             const unsigned* pattern, int chunks) {
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; chunk++) {
    const unsigned odd[4] = {pattern[4 * chunk], pattern[4 * chunk - 2], 0, 0};
    const unsigned char* at = image + 16 * chunk;
#pragma unroll
    for (int k = 0; k < Y / 2; k++, at += 2 * pitch) {
      multiply_bytes(d[2 * k + 1], odd, *reinterpret_cast<const unsigned*>(at), 0);
    }
  }
}

// The column of the tile that sum i of D belongs to.
__device__ __forceinline__ int column_of(int i) {
  return threadIdx.x % 4 * 32 + threadIdx.x % 32 / 4 + i % 2 * 16 + i / 2 * 8;
}

// Sums of I and of I I of 8 columns over the h rows of a window.
struct WindowColumns {
  unsigned s[8] = {}, ss[8] = {};

  // Four rows at once: a word has one column's four pixels after they are transposed.
  __device__ __forceinline__ void add(const uint2 (&rows)[4]) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const unsigned r0 = half ? rows[0].y : rows[0].x, r1 = half ? rows[1].y : rows[1].x;
      const unsigned r2 = half ? rows[2].y : rows[2].x, r3 = half ? rows[3].y : rows[3].x;
      const unsigned a = pick(r0, r1, 0x5140), b = pick(r2, r3, 0x5140);
      const unsigned c = pick(r0, r1, 0x7362), d = pick(r2, r3, 0x7362);
      const unsigned columns[4] = {pick(a, b, 0x5410), pick(a, b, 0x7632), pick(c, d, 0x5410), pick(c, d, 0x7632)};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        s[4 * half + i] = dot4(columns[i], 0x01010101u, s[4 * half + i]);
        ss[4 * half + i] = dot4(columns[i], columns[i], ss[4 * half + i]);
      }
    }
  }

  __device__ __forceinline__ void slide(uint2 enters, uint2 leaves) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      const unsigned e = pick(i < 4 ? enters.x : enters.y, 0, 0x4440 + i % 4);
      const unsigned l = pick(i < 4 ? leaves.x : leaves.y, 0, 0x4440 + i % 4);
      s[i] += e - l;
      ss[i] += (e - l) * (e + l);
    }
  }
};

// Room for a warp's prefix sums of 256 columns: those of columns 0 to 3 of every eight, then those of columns
// 4 to 7, with a gap every 64, so that lanes write 16 bytes side by side and read, at columns `column_of`, in
// different banks.
constexpr int PREFIX_HALF = 164;
struct PrefixSums {
  unsigned s[2 * PREFIX_HALF], ss[2 * PREFIX_HALF];

  __device__ static __forceinline__ int index(int x) {
    return (x >> 3) * 4 + (x & 3) + (x >> 6) * 8 + (x & 4 ? PREFIX_HALF : 0);
  }

  // Writes the prefix sums of columns 8 lane to 8 lane + 7 to that lane's place.
  __device__ static __forceinline__ void write(uint4* to, const WindowColumns& columns) {
    unsigned p[8], q[8];
    unsigned sum = columns.s[0], squares = columns.ss[0];
#pragma unroll
    for (int i = 1; i < 8; i++) sum += columns.s[i], squares += columns.ss[i];
    unsigned before = sum, before_squares = squares;
    add_lanes_before(before, before_squares);
    p[0] = before - sum;
    q[0] = before_squares - squares;
#pragma unroll
    for (int i = 1; i < 8; i++) p[i] = p[i - 1] + columns.s[i - 1], q[i] = q[i - 1] + columns.ss[i - 1];
    to[0] = {p[0], p[1], p[2], p[3]};
    to[PREFIX_HALF / 4] = {p[4], p[5], p[6], p[7]};
    to[PREFIX_HALF / 2] = {q[0], q[1], q[2], q[3]};
    to[PREFIX_HALF / 4 * 3] = {q[4], q[5], q[6], q[7]};
  }
};
static_assert(sizeof(PrefixSums) == 16 * PREFIX_HALF, "as `PREFIX_BYTES` of the host");

// a * b + c, in one instruction.
__device__ __forceinline__ unsigned long long wide_product(unsigned a, unsigned b, unsigned long long c) {
  unsigned long long result;
  asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(result) : "r"(a), "r"(b), "l"(c));
  return result;
}

// 1 / sqrt(W) of ncc_fast.cuh, from S and SS; 0 where the window is flat. In integers, since most devices
// have few units for f64: n SS - S S, which is below 2^46, is exact, and rounded to f32 twice.
__device__ __forceinline__ float inverse_deviation(unsigned s, unsigned ss, unsigned n, float factor) {
  const unsigned long long variance = wide_product(n, ss, 0) - wide_product(s, s, 0);
  const float squared = __fmaf_rn(float(unsigned(variance >> 32)), 4294967296.0f, float(unsigned(variance)));
  return inverse_root(squared == 0.0f ? __int_as_float(0x7f800000) : __fmul_rn(squared, factor));
}

// The bounds of a score. With e = ST - b, b being S times `mean` (t1 / n in units of 2^-24) cut off, it lies
// between (e - 5/4) r and (e + 1/4) r: b is too small by less than 1 for the cutting, and off by 1/4 at most
// since the mean is rounded and S is below 2^23.
__device__ __forceinline__ Bounds bounds_of(int e, float r) {
  const float most = __fmul_rn(__fadd_rn(float(e), 0.25f), r);
  return {__fmaf_rn(-1.5f, r, most), most};
}

// Where r and lower bounds of a tile's row of positions lie: sum i of D of a lane at 32 i + lane.
__device__ __forceinline__ int plane_slot(int x) { return (x >> 4 & 1) * 32 + (x >> 3 & 1) * 64 + (x & 7) * 4 + (x >> 5); }

// Moves the next four rows of d to the front: registers have no index, and unrolled loops over all of d would
// not fit into the instruction cache.
template <int Y>
__device__ __forceinline__ void rotate(unsigned (&d)[Y][4]) {
  unsigned first[4][4];
#pragma unroll
  for (int i = 0; i < 16; i++) first[i / 4][i % 4] = d[i / 4][i % 4];
#pragma unroll
  for (int i = 0; i < 4 * Y - 16; i++) d[i / 4][i % 4] = d[i / 4 + 4][i % 4];
#pragma unroll
  for (int i = 0; i < 16; i++) d[Y - 4 + i / 4][i % 4] = first[i / 4][i % 4];
}

// Turns products into bounds of scores: d, for ROWS rows of positions of a warp, gets the upper ones; NaN
// outside the region. Passes the lower ones to `consume(row, i, bound)`. tile: the first row's pixels.
template <int ROWS, class Consume>
__device__ __forceinline__ void add_sums(unsigned (&d)[ROWS][4], const unsigned char* tile, int pitch, const Search& search,
                                         int first_x, int end_x, int end_y, PrefixSums* prefix,
                                         Consume consume) {
  const int lane = threadIdx.x % 32, w = search.sought.pattern.w, h = search.sought.pattern.h;
  // Lanes beyond the tile's columns repeat its last ones.
  const unsigned char* columns = tile + min(lane * 8, pitch - 8);
  WindowColumns sums;
#pragma unroll 1
  for (int j = 0; j < h; j += 4) {
    uint2 rows[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      rows[i] = j + i < h ? *reinterpret_cast<const uint2*>(columns + (j + i) * pitch) : make_uint2(0, 0);
    }
    sums.add(rows);
  }
  const unsigned* begin = prefix->s + PrefixSums::index(column_of(0));
  const unsigned* end[4];
  float beside[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const int x = column_of(i);
    end[i] = prefix->s + PrefixSums::index(x + w);
    beside[i] = x < first_x || x >= end_x ? __int_as_float(0x7fffffff) : 0.0f;
  }
  uint4* out = reinterpret_cast<uint4*>(prefix->s + PrefixSums::index(8 * lane));
  // Through a shuffle, so that it stays in a register: otherwise it is loaded for every position.
  const float factor = __shfl_sync(ALL_LANES, search.factor, 0);
  const unsigned n = search.sought.pattern.n;
  const int entering = h * pitch;
#pragma unroll 1
  for (int group = 0; group < ROWS; group += 4) {
#pragma unroll
    for (int k = 0; k < 4; k++, columns += pitch) {
      PrefixSums::write(out, sums);
      sums.slide(*reinterpret_cast<const uint2*>(columns + entering), *reinterpret_cast<const uint2*>(columns));
      __syncwarp();
      const bool is_inside = group + k < end_y;
      unsigned s[4], ss[4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const int from = i % 2 * 8 + i / 2 * 4;
        s[i] = end[i][0] - begin[from];
        ss[i] = end[i][2 * PREFIX_HALF] - begin[from + 2 * PREFIX_HALF];
      }
      __syncwarp();
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const float r =
            __fadd_rn(inverse_deviation(s[i], ss[i], n, factor), is_inside ? beside[i] : __int_as_float(0x7fffffff));
        const Bounds bounds = bounds_of(int(d[k][i] - __umulhi(s[i] << 8, search.mean)), r);
        d[k][i] = __float_as_uint(bounds.most);
        consume(group + k, i, bounds.least);
      }
    }
    rotate(d);
  }
}

// A tile of TILE_X by 4 Y positions, see above.
template <int Y>
__device__ __forceinline__ void match(const Search& search, const unsigned* spread, int piece_rows) {
  constexpr int TILE_Y = MMA_WARPS * Y, ROWS = Y / 2;
  const int lane = threadIdx.x % 32, warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0);
  const int group = warp % MMA_WARPS, half = warp / MMA_WARPS;
  const int w = search.sought.pattern.w, h = search.sought.pattern.h, whole_h = (h + 3) / 4 * 4;
  const int chunks = (w + 30) / 16, pitch = 112 + 16 * chunks;
  unsigned char* tile = shared;
  // The template's pieces; later a plane of numbers, one a position, and room for sums.
  unsigned* pattern = reinterpret_cast<unsigned*>(tile + (TILE_Y + whole_h) * pitch);
  unsigned* plane = pattern;
  PrefixSums* prefix = reinterpret_cast<PrefixSums*>(plane + TILE_Y * TILE_X) + warp;
  // The tile begins at a multiple of 16 bytes: its first `offset` columns lie before the region.
  const int offset = search.sought.left & 15;
  const int tile_x = blockIdx.x * TILE_X, tile_y = blockIdx.y * TILE_Y;

  load_tile<MATCH_THREADS>(tile, search.sought.frame, search.sought.left - offset + tile_x, search.sought.top + tile_y, pitch / 16,
                           TILE_Y + h - 1, PIXELS);
  // Sums of this warp's rows.
  unsigned d[ROWS][4];
  {
    unsigned all[Y][4] = {};
    const unsigned char* image = tile + group * Y * pitch + 4 * lane;
    const unsigned* words = pattern + lane_in_pattern(chunks);
    const int row_words = 4 * copy_pitch(chunks);
    for (int first = 0; first < whole_h; first += piece_rows) {
      const int rows = min(piece_rows, whole_h - first);
      if (first > 0) __syncthreads();
      load_pattern<MATCH_THREADS>(pattern, spread, copy_pitch(chunks), chunks, first, rows);
      finish_copies();
      __syncthreads();
      const int middle = (rows + 4) / 8 * 4, mine = half ? middle : 0;
      add_products<Y>(all, image + (first + mine) * pitch, pitch, words + mine * row_words, chunks,
                      half ? rows - middle : middle);
      if (half && first + rows == h) add_last_row<Y>(all, image + h * pitch, pitch, words + rows * row_words, chunks);
    }
    __syncthreads();
    // Each takes half of the rows that both have multiplied.
    unsigned* other = plane + (group * Y + (half ? 0 : ROWS)) * TILE_X + lane;
    const unsigned* own = plane + (group * Y + (half ? ROWS : 0)) * TILE_X + lane;
#pragma unroll
    for (int i = 0; i < 4 * ROWS; i++) {
      other[32 * i] = half ? all[i / 4][i % 4] : all[ROWS + i / 4][i % 4];
      d[i / 4][i % 4] = half ? all[ROWS + i / 4][i % 4] : all[i / 4][i % 4];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * ROWS; i++) d[i / 4][i % 4] += own[32 * i];
  }
  const int first_row = group * Y + half * ROWS;
  const float best_before = from_ordered(*(volatile unsigned*)&search.sought.suspects.state->best);
  const float floor = __fadd_rn(search.all_peaks ? search.min_score : fmaxf(search.min_score, best_before), -MARGIN);
  float best = -4.0f;
  float* least = reinterpret_cast<float*>(plane) + first_row * TILE_X + lane;
  add_sums(d, tile + first_row * pitch, pitch, search, offset - tile_x, search.sought.width + offset - tile_x,
           search.sought.height - tile_y - first_row, prefix, [&](int row, int i, float bound) {
             best = fmaxf(best, bound);
             if (search.all_peaks) least[row * TILE_X + 32 * i] = bound;
           });
  float limit = floor;
  if (search.all_peaks) {
    __syncthreads();
  } else {
    best = __fadd_rn(best, -MARGIN);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) best = fmaxf(best, __shfl_xor_sync(ALL_LANES, best, step));
    if (best > best_before) {
      unsigned before = 0;
      if (lane == 0) before = atomicMax(&search.sought.suspects.state->best, ordered(best));
      best = fmaxf(best, from_ordered(__shfl_sync(ALL_LANES, before, 0)));
    }
    limit = fmaxf(floor, __fadd_rn(best, -MARGIN));
  }
  float* room = reinterpret_cast<float*>(prefix);
#pragma unroll 1
  for (int first = 0; first < ROWS; first += 4) {
    unsigned reaching = 0;
#pragma unroll
    for (int i = 0; i < 16; i++) reaching |= __uint_as_float(d[i / 4][i % 4]) >= limit ? 1u << i : 0;
    if (__any_sync(ALL_LANES, reaching)) {
      __syncwarp();
      // To where every warp can read them.
#pragma unroll
      for (int i = 0; i < 16; i++) room[i * 32 + lane] = __uint_as_float(d[i / 4][i % 4]);
#pragma unroll 1
      for (; reaching; reaching &= reaching - 1) {
        const int i = __ffs(reaching) - 1, x = column_of(i % 4), y = first_row + first + i / 4;
        const float bound = room[i * 32 + lane];
        if (search.all_peaks) {
          // Skips positions that a neighbour in the tile surely beats. Bounds of positions outside the region
          // are no maximum.
          float highest = -4.0f;
          for (int at_y = max(y - 1, 0); at_y <= min(y + 1, TILE_Y - 1); at_y++) {
            for (int at_x = max(x - 1, 0); at_x <= min(x + 1, TILE_X - 1); at_x++) {
              highest = fmaxf(highest, __uint_as_float(plane[at_y * TILE_X + plane_slot(at_x)]));
            }
          }
          if (highest > __fadd_rn(bound, 3.0f * MARGIN)) continue;
        }
        search.sought.suspects.add(tile_x - offset + x, tile_y + y, __fadd_rn(bound, MARGIN));
      }
    }
    rotate(d);
  }
}

extern "C" {

__global__ void __launch_bounds__(MATCH_THREADS, MATCH_BLOCKS)
    ncc_mma_64(const __grid_constant__ Search search, const unsigned* spread, int piece_rows) {
  match<16>(search, spread, piece_rows);
}

__global__ void __launch_bounds__(MATCH_THREADS, MATCH_BLOCKS)
    ncc_mma_32(const __grid_constant__ Search search, const unsigned* spread, int piece_rows) {
  match<8>(search, spread, piece_rows);
}

// Sums products over a template of any size, piece by piece. A block computes 128 by 64 positions and has a
// share of the pieces; blocks that share positions add to the map.
//
// Without a mask (mask == nullptr): ST of every position into the map. With one, four sums: ST and, from bit
// LOW_BYTES_SHIFT on, that of the low bytes of I I into the map, those of I and of the high bytes of I I into
// `s` and `high`. All of them are zeros before.
//
// Grid: ((left % 16 + width) / 128, height / 64, shares times the 1 or 4 sums), rounded up; block 128; at
// least pieces / MOST_PIECES shares, pieces = C / PIECE_CHUNKS times h / PIECE_ROWS, each rounded up. Shared
// memory: (112 + 16 c) (64 + PIECE_ROWS) + 16 P (PIECE_ROWS + 1), where c is the lesser of C and
// PIECE_CHUNKS, and P is that of c chunks.
__global__ void __launch_bounds__(MMA_THREADS, 2 * MATCH_BLOCKS)
    ncc_mma_products(const __grid_constant__ Region region, const unsigned* pixels, const unsigned* mask, int shares,
                     unsigned long long* map, unsigned* s, unsigned* high) {
  constexpr int Y = 16, TILE_Y = MMA_WARPS * Y;
  static_assert(TILE_Y == 64, "as `PRODUCTS_TILE` of the host");
  const int lane = threadIdx.x % 32, warp = __shfl_sync(ALL_LANES, threadIdx.x / 32, 0);
  const int sum = blockIdx.z / shares, share = blockIdx.z % shares;
  const Plane plane = sum == 1 ? LOW_BYTES : sum == 3 ? HIGH_BYTES : PIXELS;
  const unsigned* spread = sum == 0 ? pixels : mask;
  const int chunks = (region.w + 30) / 16, whole_h = (region.h + 3) / 4 * 4;
  const int across = (chunks + PIECE_CHUNKS - 1) / PIECE_CHUNKS, down = (region.h + PIECE_ROWS - 1) / PIECE_ROWS;
  const int pieces = across * down;
  const int offset = region.left & 15;
  const int tile_x = blockIdx.x * TILE_X, tile_y = blockIdx.y * TILE_Y;
  unsigned d[Y][4] = {};
  const int first_piece = int((long long)pieces * share / shares), end_piece = int((long long)pieces * (share + 1) / shares);
  for (int piece = first_piece; piece < end_piece; piece++) {
    const int first_chunk = piece % across * PIECE_CHUNKS, first_row = piece / across * PIECE_ROWS;
    const int these = min(PIECE_CHUNKS, chunks - first_chunk), rows = min(PIECE_ROWS, whole_h - first_row);
    const int pitch = 112 + 16 * these;
    unsigned* pattern = reinterpret_cast<unsigned*>(shared + (TILE_Y + PIECE_ROWS) * pitch);
    if (piece > first_piece) __syncthreads();
    load_tile<MMA_THREADS>(shared, region.frame, region.left - offset + tile_x + 16 * first_chunk,
                           region.top + tile_y + first_row, pitch / 16, TILE_Y + rows - 1, plane);
    load_pattern<MMA_THREADS>(pattern, spread + 4 * first_chunk, copy_pitch(chunks), these, first_row, rows);
    finish_copies();
    __syncthreads();
    const unsigned char* image = shared + warp * Y * pitch + 4 * lane;
    const unsigned* words = pattern + lane_in_pattern(these);
    add_products<Y>(d, image, pitch, words, these, rows);
    if (first_row + rows == region.h) {
      add_last_row<Y>(d, image + rows * pitch, pitch, words + rows * 4 * copy_pitch(these), these);
    }
  }
#pragma unroll 1
  for (int group = 0; group < Y; group += 4) {
#pragma unroll
    for (int i = 0; i < 16; i++) {
      const int x = tile_x - offset + column_of(i % 4), y = tile_y + warp * Y + group + i / 4;
      const bool is_there = x >= 0 && x < region.width && y < region.height;
      const size_t at = size_t(y) * region.width + x;
      const unsigned value = d[i / 4][i % 4];
      if (sum >= 2) {
        if (is_there) atomicAdd((sum == 2 ? s : high) + at, value);
      } else if (is_there) {
        atomicAdd(map + at, (unsigned long long)value << (sum == 1 ? LOW_BYTES_SHIFT : 0));
      }
    }
    rotate(d);
  }
}

// Scores of a masked template's positions, from what ncc_mma_products left: the score takes the map's place.
__global__ void ncc_mma_scores(const unsigned* s, const unsigned* high, Pattern t, unsigned positions,
                               unsigned long long* map) {
  const unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= positions) return;
  const unsigned long long both = map[at], low = both >> LOW_BYTES_SHIFT;
  const long long st = both & ((1ull << LOW_BYTES_SHIFT) - 1);
  map[at] = __double_as_longlong(score(t, s[at], low + 256ull * high[at], st));
}

// A template's rows, four times each, see above. One thread a word of `spread`: 4 P H.
__global__ void spread_template(const unsigned char* pixels, int pitch, int w, int h, unsigned* spread) {
  const int copies = copy_pitch((w + 30) / 16), index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= 4 * copies * ((h + 3) / 4 * 4)) return;
  const int j = index / copies / 4, first = index % copies * 4 + index / copies % 4 - 16;
  unsigned word = 0;
  for (int k = 0; k < 4; k++) {
    const int i = first + k;
    if (i >= 0 && i < w && j < h) word |= unsigned(pixels[size_t(j) * pitch + i]) << 8 * k;
  }
  spread[index] = word;
}

}  // extern "C"
