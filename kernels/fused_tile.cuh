// Loads a block's part of the picture into shared memory, and stores its part of the mask: shared by the
// kernels that read a frame once and write the mask once.
//
// Oracle: that of the kernels that include this, *_fused*.cu.
#pragma once

#include "launches.cuh"
#include "packed.cuh"
#include "threshold_rules.cuh"

// Maximum threads of a block.
constexpr int FUSED_THREADS = 512;

__host__ __device__ constexpr int round_up(int value, int step) { return (value + step - 1) / step * step; }

// The next odd multiple of 16: rows so far apart let lanes read 16 bytes each, one row below the other, from
// all banks.
__host__ __device__ constexpr int round_up_odd(int bytes) { return ((bytes + 15) / 16 | 1) * 16; }

// Division by 2 or more, for numbers whose product with the divisor is below 2^32: the host rounds 2^32 / by
// up.
struct Divisor {
  int by;
  unsigned reciprocal;

  __device__ __forceinline__ int quotient(int number) const { return __umulhi(number, reciprocal); }
};

// How blocks share the work, made by the host (crates/lockon-cuda/src/fused.rs).
struct Shares {
  // Pieces of 16 bytes in a row of the mask's tile, and in a row of the halo loaded for it.
  Divisor mask_pieces, pieces;
  // Rows whose pieces a block moves at once: of the mask, and of the halo.
  int mask_rows_at_once, rows_at_once;
  // Rows of the mask's tile.
  Divisor rows;
  // For the box thresholds: columns by four; rows that a thread slides down; runs of as many rows, summed
  // first; runs in a window (0 for none).
  Divisor groups;
  int run, runs, runs_in_window;
  // For the Gaussian: steps of 16 numbers that its matrices have.
  int steps;
};
static_assert(sizeof(Divisor) == 8 && sizeof(Shares) == 56 && OFFSET(Shares, mask_rows_at_once) == 16 &&
                  OFFSET(Shares, rows) == 24 && OFFSET(Shares, groups) == 32 && OFFSET(Shares, run) == 40 &&
                  OFFSET(Shares, steps) == 52,
              "as the host fills it");

// A tile of the mask, from (left, top) on, and the pixels that its windows see: `radius` further on every
// side, `above` further up. In shared memory rows start with a column that is a multiple of 16.
struct Tile {
  int left, top, radius, above;

  // Column of the first byte of a row.
  __device__ __forceinline__ int start() const { return (left - radius) & ~15; }
  // Bytes before the first column that a window sees.
  __device__ __forceinline__ int lead() const { return -radius & 15; }
  // Bytes before the mask's first column: a multiple of 16.
  __device__ __forceinline__ int inner() const { return lead() + radius; }
  __device__ __forceinline__ int rows(const Shares& shares) const { return shares.rows.by + above + radius; }
};

// Loads what a tile sees, the border replicated: row y, counted from the first that is loaded, to halo +
// place(y) * pitch.
//
// All threads of the block call this. When it returns, the data that others loaded is there.
template <class Place>
__device__ __forceinline__ void load_tile(Image image, Tile tile, const Shares& shares, unsigned char* halo, int pitch,
                                          Place place) {
  let_next_begin();
  const int start = tile.start(), top = tile.top - tile.above, rows = tile.rows(shares), pieces = shares.pieces.by;
  const bool is_aligned = (reinterpret_cast<size_t>(image.pixels) | image.pitch) % 16 == 0;
  // A thread has one piece of every step-th row.
  const int first = shares.pieces.quotient(threadIdx.x), step = shares.rows_at_once;
  const int column = 16 * (threadIdx.x - first * pieces), x = start + column;
  const auto row = [=](int y) { return image.pixels + size_t(clamp(top + y, image.height - 1)) * image.pitch; };
  if (first < step) {
    if (!is_aligned) {
#pragma unroll 1
      for (int y = first; y < rows; y += step) {
        unsigned char* to = halo + place(y) * pitch + column;
#pragma unroll 1
        for (int i = 0; i < 16; i++) to[i] = row(y)[clamp(x + i, image.width - 1)];
      }
    } else if (0 <= x && x < image.width) {
#pragma unroll 4
      for (int y = first; y < rows; y += step) copy_piece(halo + place(y) * pitch + column, row(y) + x);
    }
  }
  wait_for_pieces();
  __syncthreads();
  const int left = max(-start, 0), right = image.width - start;
  if (!is_aligned || (left == 0 && 16 * pieces <= right)) return;
  // A row's thread copies its first and last pixel to the columns outside.
#pragma unroll 1
  for (int y = threadIdx.x; y < rows; y += blockDim.x) {
    unsigned char* const pixels = halo + place(y) * pitch;
    const unsigned first = pixels[left] * 0x01010101u, last = pixels[min(right, 16 * pieces) - 1] * 0x01010101u;
#pragma unroll 1
    for (int i = 0; i < left; i += 16) *reinterpret_cast<uint4*>(pixels + i) = {first, first, first, first};
    int i = right;
#pragma unroll 1
    for (; i % 16 != 0 && i < 16 * pieces; i++) pixels[i] = last;
#pragma unroll 1
    for (; i < 16 * pieces; i += 16) *reinterpret_cast<uint4*>(pixels + i) = {last, last, last, last};
  }
  __syncthreads();
}

// Adds up a number of each thread of the block and adds the sum to the counter: one atomic operation a block.
__device__ __forceinline__ void add_block(unsigned long long* counter, unsigned count) {
  __shared__ unsigned counts[FUSED_THREADS / 32];
  count = __reduce_add_sync(ALL_LANES, count);
  if (threadIdx.x % 32 == 0) counts[threadIdx.x / 32] = count;
  __syncthreads();
  if (threadIdx.x >= 32) return;
  count = __reduce_add_sync(ALL_LANES, threadIdx.x < blockDim.x / 32 ? counts[threadIdx.x] : 0);
  if (threadIdx.x == 0 && count > 0) atomicAdd(counter, (unsigned long long)count);
}

// The mask of the frame, rows of `width` bytes.
struct Mask {
  unsigned char* bytes;
  int width, height;
  bool is_aligned;  // so that rows are whole pieces

  __device__ __forceinline__ Mask(unsigned char* bytes, Image image)
      : bytes(bytes), width(image.width), height(image.height),
        is_aligned((reinterpret_cast<size_t>(bytes) | image.width) % 16 == 0) {}

  // Writes a piece whose bytes are 0 or 255, as far as it lies in the frame; returns the number of its 255,
  // negative.
  __device__ __forceinline__ int store(int x, int y, const unsigned char* from) const {
    if (x >= width || y >= height) return 0;
    unsigned char* to = bytes + size_t(y) * width + x;
    if (is_aligned) {
      const uint4 piece = *reinterpret_cast<const uint4*>(from);
      *reinterpret_cast<uint4*>(to) = piece;
      return add_bytes(add_bytes(add_bytes(add_bytes(0, piece.x), piece.y), piece.z), piece.w);
    }
    int count = 0;
#pragma unroll 1
    for (int i = 0; i < min(16, width - x); i++) {
      to[i] = from[i];
      count -= from[i] / 255;
    }
    return count;
  }
};
