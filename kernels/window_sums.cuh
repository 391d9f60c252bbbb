// Sums of I and of I * I over a window that slides: down the columns first, then along the rows.
//
// A window costs the same whatever its size: sliding by one row or column takes one number in and drops one.
// All sums are exact. A column's sum of squares fits in 32 bits for up to 65536 rows, which no frame exceeds;
// sums of a window of squares need 64.
//
// Oracle: that of ncc.cu, and that of threshold.cu, which include this.
#pragma once

#include "shared.h"

// Rows that a thread slides down before another thread begins: with more rows less is read, with fewer more
// threads are busy. Other numbers were not measured.
constexpr int STRIP_ROWS = 32;

// Positions that a warp slides along. Other numbers were not measured.
constexpr int SEGMENT = 256;

constexpr unsigned ALL_LANES = 0xffffffffu;

// 8-bit luma in device memory.
struct Image {
  const unsigned char* pixels;
  int pitch;  // bytes from row to row
  int width;
  int height;
};
static_assert(sizeof(Image) == 24 && OFFSET(Image, pitch) == 8 && OFFSET(Image, height) == 16, "as the host fills it");

__device__ __forceinline__ int clamp(int value, int last) { return min(max(value, 0), last); }

// s[y][x] and ss[y][x]: sums of I and of I * I down h rows of column x from row y - top on, rows outside
// being the border's.
//
// `rows` rows of s and ss are written, each `pitch` numbers after the one before. One thread a column and
// strip of rows: grid (columns / block.x, strips / block.y), rounded up. AT_ONCE rows are on their way at a
// time: 16 pay where windows are high.
template <int AT_ONCE = 4>
__device__ __forceinline__ void sum_columns(Image image, int top, int h, int rows, unsigned* s, unsigned* ss, int pitch) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x;
  const int first = (blockIdx.y * blockDim.y + threadIdx.y) * STRIP_ROWS;
  if (x >= image.width || first >= rows) return;
  const auto pixel = [=](int y) -> unsigned {
    return image.pixels[size_t(clamp(y, image.height - 1)) * image.pitch + x];
  };
  unsigned sum = 0, squares = 0;
#pragma unroll AT_ONCE
  for (int j = 0; j < h; j++) {
    const unsigned value = pixel(first - top + j);
    sum += value;
    squares += value * value;
  }
  const int last = min(first + STRIP_ROWS, rows) - 1;
  for (int y = first;; y++) {
    s[size_t(y) * pitch + x] = sum;
    ss[size_t(y) * pitch + x] = squares;
    if (y == last) break;
    const unsigned enters = pixel(y - top + h), leaves = pixel(y - top);
    sum += enters - leaves;
    squares += enters * enters - leaves * leaves;
  }
}

// Calls consume(x, S, SS) for positions first <= x < min(first + SEGMENT, positions) of one row: the sums of
// columns x - left to x - left + w - 1, columns outside being the border's. s and ss are the row's `columns`
// column sums.
//
// All lanes of a warp call this together, with the same arguments; each lane gets every 32nd position.
template <class Consume>
__device__ __forceinline__ void slide_along_row(const unsigned* s, const unsigned* ss, int columns, int left, int w,
                                                int positions, int first, Consume consume) {
  const int lane = threadIdx.x % 32;
  const auto column = [=](int x) { return clamp(x - left, columns - 1); };
  // The first window, summed directly. Wraps cancel when the sums are complete.
  unsigned sum = 0;
  unsigned long long squares = 0;
  for (int i = lane; i < w; i += 32) {
    sum += s[column(first + i)];
    squares += ss[column(first + i)];
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(ALL_LANES, sum, step);
    squares += __shfl_xor_sync(ALL_LANES, squares, step);
  }
  // Then differences, added up over the lanes.
  const int end = min(first + SEGMENT, positions);
  for (int chunk = first; chunk < end; chunk += 32) {
    const int x = chunk + lane;
    unsigned moved = 0;
    unsigned long long moved_squares = 0;
    if (x > first) {
      const int enters = column(x + w - 1), leaves = column(x - 1);
      moved = s[enters] - s[leaves];
      moved_squares = (unsigned long long)ss[enters] - ss[leaves];
    }
    for (int step = 1; step < 32; step *= 2) {
      const unsigned before = __shfl_up_sync(ALL_LANES, moved, step);
      const unsigned long long before_squares = __shfl_up_sync(ALL_LANES, moved_squares, step);
      if (lane >= step) {
        moved += before;
        moved_squares += before_squares;
      }
    }
    if (x < end) consume(x, sum + moved, squares + moved_squares);
    sum += __shfl_sync(ALL_LANES, moved, 31);
    squares += __shfl_sync(ALL_LANES, moved_squares, 31);
  }
}
