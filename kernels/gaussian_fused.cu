// The Gaussian threshold in one pass, on the tensor cores: the frame is read once, the mask written once. The
// same bytes as the kernels of threshold.cu, whose formulas these are.
//
// target: compute_80, compute_90
//
// A convolution of 16 neighbours is a product with the matrix A[i][k] = weight[k - i], 16 rows of 16 * steps
// bytes: a weight has 24 bits and so gives three matrices, one a byte (a "plane"), and both passes use the
// same three. Sums of products of bytes are exact; shifted by 8 bits a plane and added up they are the sums
// of the formulas.
//
// A block of GAUSSIAN_THREADS threads makes a tile of the mask, 16 * columns wide:
//
//   1. It loads the tile with its halo, radius pixels on each side, in pieces of 16 bytes.
//   2. Along the rows: A by 16 x 16 pixels, for each plane. A row's sums have 24 bits once rounded: three
//      planes again, which are written transposed, planes[p][x][y], so that columns are contiguous.
//   3. Down the columns: A by each plane, nine products. The six with the highest weight usually decide: with
//      them the mean is off by less than a hundredth. Where a pixel of a warp is closer to its threshold the
//      other three follow.
//   4. It writes the mask, in pieces of 16 bytes.
//
// Rows and columns lie in shared memory in groups of 16 in the order 0 1 4 5 8 9 12 13 2 3 6 7 10 11 14 15
// (shuffled()), and so do the rows of A. Two products by 8 columns then give a lane four neighbours, which
// are one word of bytes.
//
// Grid: (width / (16 * columns), height / rows) rounded up; the rows are a multiple of 16.
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#include "fused_tile.cuh"
#include "tensor.cuh"

// Threads of a block. Other numbers were not measured.
constexpr int GAUSSIAN_THREADS = 512;

// Bytes of a weight: each gives a matrix.
constexpr int PLANES = 3;

// Shared memory: the halo, the planes, and where they do not fit in registers the matrices.
extern __shared__ uint4 shared[];

// The place of number i.
__device__ __forceinline__ int shuffled(int i) { return (i & ~15) | (i & 2) << 2 | (i & 12) >> 1 | (i & 1); }

// The matrices, a lane's words of each plane and step.
//
// The host has made them: words[(p * steps + s) * 32 + lane] are byte p of the weights 16 s + 4 c + j - lead
// - i for j = 0 to 3, i being number g or g + 8 of the order above, 0 where there is no such weight; lead is
//   the radius' distance to the next multiple of four.

// In registers, for blocks up to 33.
struct WeightsInRegisters {
  static constexpr int STEPS = 3;
  uint2 words[PLANES * STEPS];

  __device__ __forceinline__ WeightsInRegisters(const uint2* made, uint4*, int) {
#pragma unroll
    for (int i = 0; i < PLANES * STEPS; i++) words[i] = made[32 * i + threadIdx.x % 32];
  }
  __device__ __forceinline__ uint2 word(int p, int s) const { return words[p * STEPS + s]; }

  // Calls two(s) for the steps s and s + 1, for all of them, and one(s) for a last one without a second.
  template <class Two, class One>
  __device__ __forceinline__ void by_two(Two two, One one) const {
    two(0);
    one(2);
  }
};

// In shared memory, for all blocks.
struct WeightsInMemory {
  const uint2* words;
  int steps;

  __device__ __forceinline__ WeightsInMemory(const uint2* made, uint4* memory, int steps)
      : words(reinterpret_cast<const uint2*>(memory) + threadIdx.x % 32), steps(steps) {
    for (int i = threadIdx.x; i < PLANES * steps * 16; i += GAUSSIAN_THREADS) {
      copy_piece(memory + i, reinterpret_cast<const uint4*>(made) + i);
    }
  }
  __device__ __forceinline__ uint2 word(int p, int s) const { return words[(p * steps + s) * 32]; }

  template <class Two, class One>
  __device__ __forceinline__ void by_two(Two two, One one) const {
#pragma unroll 1
    for (int s = 0; s + 1 < steps; s += 2) two(s);
    if (steps % 2 == 1) one(steps - 1);
  }
};

// Pass along the rows: 16 x 16 sums from `pixels`, a lane's first word of them, to `planes`, a lane's first
// of those.
template <class Matrices>
__device__ __forceinline__ void weigh_rows(const Matrices& weights, const unsigned* pixels, int pitch,
                                           unsigned* planes, int plane_pitch, int plane) {
  // [t][p]: rows 4 c + 2 t and the next.
  Sums sums[2][PLANES] = {};
#pragma unroll
  for (int t = 0; t < 2; t++) sums[t][0] = {{128, 128, 128, 128}};  // rounds half up
  weights.by_two(
      [&](int s) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
          const unsigned *word = pixels + 8 * t * pitch + 4 * s, first = word[0], second = word[4];
#pragma unroll
          for (int p = 0; p < PLANES; p++) {
            multiply_add(sums[t][p], weights.word(p, s), weights.word(p, s + 1), first, second);
          }
        }
      },
      [&](int s) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
          const unsigned only = pixels[8 * t * pitch + 4 * s];
#pragma unroll
          for (int p = 0; p < PLANES; p++) multiply_add(sums[t][p], weights.word(p, s), only);
        }
      });
  // Columns g and g + 8, four rows each. The lowest byte of a sum is what rounding drops.
#pragma unroll
  for (int half = 0; half < 2; half++) {
    unsigned four[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const Sums* parts = sums[j / 2];
      const int at = 2 * half + j % 2;
      four[j] = (unsigned(parts[2].at[at]) * 256 + unsigned(parts[1].at[at])) * 256 + unsigned(parts[0].at[at]);
    }
    const unsigned low[2] = {pick(four[0], four[1], 0x6251), pick(four[2], four[3], 0x6251)};
    const unsigned high[2] = {pick(four[0], four[1], 0x0073), pick(four[2], four[3], 0x0073)};
    unsigned* to = planes + 8 * half * plane_pitch;
    to[0] = pick(low[0], low[1], 0x5410);
    to[plane] = pick(low[0], low[1], 0x7632);
    to[2 * plane] = pick(high[0], high[1], 0x5410);
  }
}

// Products of planes of weights and of rows, by their shift in bytes less a constant.
struct Ranks {
  Sums at[2][3];  // [t][rank]
};

// Adds all products of plane p of the weights and q of the rows with LEAST <= p + q <= LEAST + 2 to rank p +
// q - LEAST.
template <int LEAST, class Matrices>
__device__ __forceinline__ void weigh_columns(Ranks& ranks, const Matrices& weights, const unsigned* planes, int pitch,
                                              int plane) {
  weights.by_two(
      [&](int s) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
#pragma unroll
          for (int q = 0; q < PLANES; q++) {
            if (q + PLANES - 1 < LEAST || q > LEAST + 2) continue;
            const unsigned *word = planes + q * plane + 8 * t * pitch + 4 * s, first = word[0], second = word[4];
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
              const int rank = p + q - LEAST;
              if (0 <= rank && rank <= 2) {
                multiply_add(ranks.at[t][rank], weights.word(p, s), weights.word(p, s + 1), first, second);
              }
            }
          }
        }
      },
      [&](int s) {
#pragma unroll
        for (int t = 0; t < 2; t++) {
#pragma unroll
          for (int q = 0; q < PLANES; q++) {
            if (q + PLANES - 1 < LEAST || q > LEAST + 2) continue;
            const unsigned only = planes[q * plane + 8 * t * pitch + 4 * s];
#pragma unroll
            for (int p = 0; p < PLANES; p++) {
              const int rank = p + q - LEAST;
              if (0 <= rank && rank <= 2) multiply_add(ranks.at[t][rank], weights.word(p, s), only);
            }
          }
        }
      });
}

template <class Matrices>
__device__ __forceinline__ void gaussian_fused(Image image, unsigned char* mask, unsigned long long* foreground,
                                               int radius, bool inverse, const Shares& shares, const uint2* made,
                                               int offset) {
    const int tile_height = shares.rows.by, columns = shares.mask_pieces.by, steps = shares.steps;
  const int halo_pitch = round_up_odd(16 * columns - 16 + 12 + 16 * steps);
  const Tile tile = {int(blockIdx.x) * 16 * columns, int(blockIdx.y) * tile_height, radius, round_up(radius, 4)};
  const int row_groups = round_up(tile.rows(shares), 16) / 16;
  const int pitch = round_up_odd(tile_height - 16 + 16 * steps), plane = pitch * 16 * columns;
  unsigned char* const halo = reinterpret_cast<unsigned char*>(shared);
  unsigned char* const planes = halo + halo_pitch * 16 * row_groups;
  const auto place = [](int y) { return shuffled(y); };
  const Matrices matrices(made, reinterpret_cast<uint4*>(planes + PLANES * plane), steps);
  load_tile(image, tile, shares, halo, halo_pitch, place);

  const int warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
  for (int unit = warp; unit < row_groups * columns; unit += GAUSSIAN_THREADS / 32) {
    const int group = shares.mask_pieces.quotient(unit), column = unit - group * columns;
    const unsigned char* const from = halo + (16 * group + g) * halo_pitch + (tile.lead() & 12) + 16 * column;
    unsigned char* const to = planes + (16 * column + g) * pitch + 16 * group;
    weigh_rows(matrices, reinterpret_cast<const unsigned*>(from) + c, halo_pitch / 4, reinterpret_cast<unsigned*>(to) + c,
               pitch / 4, plane / 4);
  }
  // A warp uses rows that other warps weighed.
  __syncthreads();

  // The ranks 0 and 1 and the two lowest bits of rank 2 add less than `unknown` << 18 to a sum.
  const int unknown = ((3 << 16) + (2 * radius + 1) * (255 * 255) * (2 * 256 + 1)) / (1 << 18) + 1;
  const unsigned flip = inverse ? 0xffffffffu : 0;
  for (int unit = warp; unit < tile_height / 16 * columns; unit += GAUSSIAN_THREADS / 32) {
    const int group = shares.mask_pieces.quotient(unit), column = unit - group * columns;
    const unsigned* rows = reinterpret_cast<const unsigned*>(planes + (16 * column + g) * pitch + 16 * group) + c;
    Ranks high = {};
    weigh_columns<2>(high, matrices, rows, pitch / 4, plane / 4);
    // Rows 4 (g / 2) + g % 2 and the second after it, four neighbours each.
    unsigned* at[2];
    unsigned pixels[2];
    int verdicts[2][4];
    bool is_unsure = false;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int y = 16 * group + g / 2 * 4 + g % 2 + 2 * half;
      unsigned char* const row = halo + place(y + tile.above) * halo_pitch + tile.inner() + 16 * column;
      at[half] = reinterpret_cast<unsigned*>(row) + c;
      pixels[half] = *at[half];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        const Sums* ranks = high.at[j / 2];
        const int i = 2 * half + j % 2;
        // I > round(M) - offset if and only if M < I + offset - 1/2, or M is just that and rounds down. With
        // M in units of 2^-22, known to `unknown`, all these fit in 31 bits.
        const int least = ranks[2].at[i] * (1 << 14) + ranks[1].at[i] * (1 << 6) + (ranks[0].at[i] >> 2);
        const int bound = int(pixels[half] >> (8 * j) & 255) * (1 << 22) + (2 * offset - 1) * (1 << 21);
        verdicts[half][j] = least - bound + unknown - 1;
        is_unsure |= unsigned(verdicts[half][j]) < unsigned(unknown);
      }
    }
    if (__any_sync(ALL_LANES, is_unsure)) {
      Ranks low = {};
      weigh_columns<0>(low, matrices, rows, pitch / 4, plane / 4);
#pragma unroll
      for (int half = 0; half < 2; half++) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
          const int i = 2 * half + j % 2;
          unsigned long long sum = unsigned(high.at[j / 2][2].at[i]);
          sum = (sum << 8) + unsigned(high.at[j / 2][1].at[i]);
#pragma unroll
          for (int rank = 2; rank >= 0; rank--) sum = (sum << 8) + unsigned(low.at[j / 2][rank].at[i]);
          // Half to even: an odd mean is pushed over by a rest of exactly one half, an even one is not.
          constexpr unsigned long long BELOW_HALF = (1ull << (MEAN_BITS - 1)) - 1;
          const int mean = int((sum + BELOW_HALF + ((sum >> MEAN_BITS) & 1)) >> MEAN_BITS);
          verdicts[half][j] = mean - offset - int(pixels[half] >> (8 * j) & 255);
        }
      }
    }
#pragma unroll
    for (int half = 0; half < 2; half++) *at[half] = spread_signs(verdicts[half]) ^ flip;
  }
  // A thread stores parts of the mask that other threads made.
  __syncthreads();
  wait_for_launches_before();
  const Mask to(mask, image);
  int count = 0;
  // A thread has one piece of every step-th row.
  const int first = shares.mask_pieces.quotient(threadIdx.x), step = shares.mask_rows_at_once;
  const int piece = threadIdx.x - first * columns;
  if (first < step) {
#pragma unroll 2
    for (int y = first; y < tile_height; y += step) {
      count += to.store(tile.left + 16 * piece, tile.top + y,
                        halo + place(y + tile.above) * halo_pitch + tile.inner() + 16 * piece);
    }
  }
  add_block(foreground, -count);
}

// Shared memory: see Tiling::gaussian_tiles in crates/lockon-cuda/src/fused.rs.

// For blocks up to 33.
extern "C" __global__ void __launch_bounds__(GAUSSIAN_THREADS)
    gaussian_fused_33(const unsigned char* pixels, int pitch, int width, int height, unsigned char* mask,
                      unsigned long long* foreground, int radius, int inverse, Shares shares, const uint2* made,
                      int offset) {
  gaussian_fused<WeightsInRegisters>({pixels, pitch, width, height}, mask, foreground, radius, inverse, shares, made,
                                     offset);
}

extern "C" __global__ void __launch_bounds__(GAUSSIAN_THREADS)
    gaussian_fused(const unsigned char* pixels, int pitch, int width, int height, unsigned char* mask,
                   unsigned long long* foreground, int radius, int inverse, Shares shares, const uint2* made,
                   int offset) {
  gaussian_fused<WeightsInMemory>({pixels, pitch, width, height}, mask, foreground, radius, inverse, shares, made,
                                  offset);
}
