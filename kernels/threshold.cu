// Adaptive threshold: foreground where a pixel stands out from its neighbourhood.
//
// The neighbourhood of a pixel is the block around it, a square with block = 2 * radius + 1, or 2 * radius + 1
// wide and 2 * down + 1 high; outside the picture it sees the nearest pixel of the border. mask[y][x] is 255
// if (I[y][x] > T[y][x]) != inverse, else 0. T comes from
//
//   mean        round(S * scale) - offset, in f32
//   Sauvola     m * (1 + k * (s / 128 - 1)), in f64
//   Niblack     m + k * s, in f64
//   Wolf        m + k * ((s / R - 1) * (m - M)), in f64
//   Phansalkar  m * (1 + 2 * exp(-10 * m / 255) + k * (s / 127.5 - 1)), in f64, the exponential from a table
//   Bradley     m * share; I * n and S * share are compared, in f64
//   Gaussian    round(sum over dx, dy of weight[dx] * weight[dy] * I[y + dy][x + dx]) - offset
//
// with S and SS the sums of I and of I * I over the neighbourhood of n pixels, scale = 1 / n, m = S / n and
// s = sqrt((n * SS - S * S) / (n * n)); M is the least luma of the frame and R the greatest s.
//
// Every sum is an exact integer and every rounding is written out, so two kernels for one method write the
// same bytes, and so does the CPU. Scale, offset and weights are made on the host
// (crates/lockon-core/src/backend/threshold.rs).
//
// The box sums (all but the Gaussian) are made by box_tile, which costs block * block steps a pixel and is for
// squares of the first three, or by box_columns and box_rows, which cost the same for every block. The Gaussian
// is a pass along the rows and one down the columns; each has a kernel with the halo in shared memory ("shared")
// and one that leaves the halo to the cache ("cached").
//
// Kernels that write a mask of `width` bytes a row add the number of its foreground pixels to *foreground.
// Blocks are multiples of 32 wide, so the lanes of a warp are neighbours in x.
//
// Oracle: crates/lockon-core/src/reference/threshold.rs, in the tests of crates/lockon-cuda/src/threshold.rs.
#include "survey.cuh"
#include "threshold_rules.cuh"

// Output pixels of a block of box_tile, one a thread: a warp is a row. Other heights were not measured.
constexpr int BOX_TILE_X = 32;
constexpr int BOX_TILE_Y = 4;

// Output pixels of a block of the Gaussian's pass along the rows, one a thread. Other sides were not
// measured.
constexpr int ROWS_TILE_X = 128;
constexpr int ROWS_TILE_Y = 2;

// Output pixels of a block of the Gaussian's pass down the columns. A thread has every COLUMNS_THREADS_Y-th
// row of its column: a tile of 64 rows spreads the cost of its halo and still fits into 48 KB with the halo
// of block 255.
constexpr int COLUMNS_TILE_X = 32;
constexpr int COLUMNS_TILE_Y = 64;
constexpr int COLUMNS_THREADS_Y = 8;

// The Gaussian weights, which add up to 1 << WEIGHT_BITS; weights[radius] is the centre's. All threads read
// the same one at the same time, which constant memory broadcasts.
__constant__ unsigned weights[255];

// Pixels of a block's tile; its size is a launch's.
extern __shared__ unsigned char tile[];

// Rules that no one-pass kernel has.

// `least` and `greatest` are those of the frame: of its luma, and of its deviations, 1 if all are 0.
struct Wolf {
  double k;
  int area;
  double least, greatest;

  __device__ __forceinline__ bool is_above(int pixel, unsigned s, unsigned ss) const {
    const Moments of(s, ss, area);
    return double(pixel) > of.m + k * ((of.s / greatest - 1.0) * (of.m - least));
  }
};

// Means of which `factors` has the term that is interpolated, and its difference to the next: the numeric
// contract's.
constexpr int PHANSALKAR_MEANS = 257;

struct Phansalkar {
  double k;
  int area;
  const double2* factors;

  __device__ __forceinline__ bool is_above(int pixel, unsigned s, unsigned ss) const {
    const Moments of(s, ss, area);
    const int whole = int(of.m);
    const double2 factor = factors[min(whole, PHANSALKAR_MEANS - 1)];
    const double term = factor.x + (of.m - double(whole)) * factor.y;
    return double(pixel) > of.m * (1.0 + term + k * (of.s / 127.5 - 1.0));
  }
};

struct Bradley {
  double share;
  int area;

  __device__ __forceinline__ bool is_above(int pixel, unsigned s, unsigned) const {
    // Both fit in 24 bits.
    return double(pixel * area) > double(s) * share;
  }
};

// Pixels of a block.
__device__ __forceinline__ int square(int radius) { return (2 * radius + 1) * (2 * radius + 1); }
__device__ __forceinline__ int area(int radius, int down) { return (2 * radius + 1) * (2 * down + 1); }

// Adds the counts of a warp's lanes to the counter: one atomic operation a warp. All lanes call this
// together.
__device__ __forceinline__ void add_warp(unsigned long long* counter, unsigned count) {
  for (int step = 16; step > 0; step /= 2) count += __shfl_xor_sync(ALL_LANES, count, step);
  if (threadIdx.x % 32 == 0 && count > 0) atomicAdd(counter, (unsigned long long)count);
}

// Box sums straight from a tile: block BOX_TILE_X x BOX_TILE_Y, grid (width / BOX_TILE_X, height /
// BOX_TILE_Y) rounded up.
//
// Shared memory: (BOX_TILE_X + 2 * radius) * (BOX_TILE_Y + 2 * radius) bytes, 2108 for block 31, 73788 for
// block 255. Neighbours read neighbouring bytes, so a warp's reads lie in 8 or 9 banks and never collide.
template <class Rule>
__device__ __forceinline__ void box_tile(Image image, unsigned char* mask, unsigned long long* foreground, int radius,
                                         bool inverse, Rule rule) {
  const int tile_width = BOX_TILE_X + 2 * radius, tile_height = BOX_TILE_Y + 2 * radius;
  const int left = blockIdx.x * BOX_TILE_X - radius, top = blockIdx.y * BOX_TILE_Y - radius;
  for (int y = threadIdx.y; y < tile_height; y += BOX_TILE_Y) {
    for (int x = threadIdx.x; x < tile_width; x += BOX_TILE_X) {
      tile[y * tile_width + x] = pixel_at(image, left + x, top + y);
    }
  }
  // Windows reach over the whole tile, which all threads loaded, also those outside the picture.
  __syncthreads();
  const int x = blockIdx.x * BOX_TILE_X + threadIdx.x, y = blockIdx.y * BOX_TILE_Y + threadIdx.y;
  bool is_foreground = false;
  if (x < image.width && y < image.height) {
    const unsigned char* window = tile + threadIdx.y * tile_width + threadIdx.x;
    unsigned sum = 0, squares = 0;  // 255^4 < 2^32
    for (int dy = 0; dy <= 2 * radius; dy++) {
      for (int dx = 0; dx <= 2 * radius; dx++) {
        const unsigned value = window[dy * tile_width + dx];
        sum += value;
        squares += value * value;
      }
    }
    is_foreground = rule.is_above(window[radius * tile_width + radius], sum, squares) != inverse;
    mask[size_t(y) * image.width + x] = is_foreground ? 255 : 0;
  }
  const int count = __syncthreads_count(is_foreground);
  if (threadIdx.x == 0 && threadIdx.y == 0 && count > 0) atomicAdd(foreground, (unsigned long long)count);
}

// Box sums along the rows from those down the columns: a warp slides along SEGMENT pixels of a row. Block
// (32, any), grid (width / SEGMENT, height / block.y) rounded up. s and ss have `width` numbers a row.
template <class Rule>
__device__ __forceinline__ void box_rows(Image image, const unsigned* s, const unsigned* ss, unsigned char* mask,
                                         unsigned long long* foreground, int radius, bool inverse, Rule rule) {
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (y >= image.height) return;  // whole warps: a warp is in one row
  const size_t row = size_t(y) * image.width;
  const unsigned char* pixels = image.pixels + size_t(y) * image.pitch;
  unsigned count = 0;
  slide_along_row(s + row, ss + row, image.width, radius, 2 * radius + 1, image.width, blockIdx.x * SEGMENT,
                  [&](int x, unsigned sum, unsigned long long squares) {
                    const bool is_foreground = rule.is_above(pixels[x], sum, unsigned(squares)) != inverse;
                    mask[row + x] = is_foreground ? 255 : 0;
                    count += is_foreground;
                  });
  add_warp(foreground, count);
}

// The Gaussian along a row, at(dx) being the pixel dx to the right: ROW_BITS fraction bits, rounded half up.
//
// The weights are symmetric, so two pixels share a multiplication. The sum fits: (255 << WEIGHT_BITS) + 128 <
// 2^32.
template <class At>
__device__ __forceinline__ unsigned weigh_row(int radius, At at) {
  constexpr int DROPPED_BITS = WEIGHT_BITS - ROW_BITS;
  unsigned sum = (1u << (DROPPED_BITS - 1)) + at(0) * weights[radius];
  for (int i = 0; i < radius; i++) sum += (at(i - radius) + at(radius - i)) * weights[i];
  return sum >> DROPPED_BITS;
}

// The Gaussian mean, at(dy) being the weighed row dy further down: rounded half to even.
template <class At>
__device__ __forceinline__ int weigh_column(int radius, At at) {
  unsigned long long sum = (unsigned long long)at(0) * weights[radius];
  for (int i = 0; i < radius; i++) sum += (unsigned long long)(at(i - radius) + at(radius - i)) * weights[i];
  // An odd mean is pushed over by a rest of exactly one half, an even one is not.
  constexpr unsigned long long BELOW_HALF = (1ull << (MEAN_BITS - 1)) - 1;
  return int((sum + BELOW_HALF + ((sum >> MEAN_BITS) & 1)) >> MEAN_BITS);
}

// Compares a thread's pixels of a tile of the pass down the columns; mean_of(j) is the mean in row j of the
// tile.
template <class MeanOf>
__device__ __forceinline__ void compare_column(Image image, unsigned char* mask, unsigned long long* foreground,
                                               int offset, bool inverse, MeanOf mean_of) {
  const int x = blockIdx.x * COLUMNS_TILE_X + threadIdx.x, top = blockIdx.y * COLUMNS_TILE_Y;
  unsigned count = 0;
  if (x < image.width) {
    const int rows = min(COLUMNS_TILE_Y, image.height - top);
    for (int j = threadIdx.y; j < rows; j += COLUMNS_THREADS_Y) {
      const int pixel = image.pixels[size_t(top + j) * image.pitch + x];
      const bool is_foreground = (pixel > mean_of(j) - offset) != inverse;
      mask[size_t(top + j) * image.width + x] = is_foreground ? 255 : 0;
      count += is_foreground;
    }
  }
  add_warp(foreground, count);
}

// Box thresholds from a tile, one kernel a rule; see box_tile.

extern "C" __global__ void mean_tile(const unsigned char* pixels, int pitch, int width, int height,
                                     unsigned char* mask, unsigned long long* foreground, int radius, int inverse,
                                     float scale, int offset) {
  box_tile({pixels, pitch, width, height}, mask, foreground, radius, inverse, Mean{scale, offset});
}

extern "C" __global__ void sauvola_tile(const unsigned char* pixels, int pitch, int width, int height,
                                        unsigned char* mask, unsigned long long* foreground, int radius, int inverse,
                                        double k) {
  box_tile({pixels, pitch, width, height}, mask, foreground, radius, inverse, Sauvola{k, square(radius)});
}

extern "C" __global__ void niblack_tile(const unsigned char* pixels, int pitch, int width, int height,
                                        unsigned char* mask, unsigned long long* foreground, int radius, int inverse,
                                        double k) {
  box_tile({pixels, pitch, width, height}, mask, foreground, radius, inverse, Niblack{k, square(radius)});
}

// Box thresholds by sliding sums: box_columns, then one kernel a rule; see box_rows.

// Any block; grid (width / block.x, height / STRIP_ROWS / block.y) rounded up. `down` is rows above and below the
// centre.
extern "C" __global__ void box_columns(const unsigned char* pixels, int pitch, int width, int height, unsigned* s,
                                       unsigned* ss, int down) {
  sum_columns({pixels, pitch, width, height}, down, 2 * down + 1, height, s, ss, width);
}

extern "C" __global__ void mean_rows(const unsigned char* pixels, int pitch, int width, int height, const unsigned* s,
                                     const unsigned* ss, unsigned char* mask, unsigned long long* foreground, int radius,
                                     int inverse, int down, float scale, int offset) {
  // The mean needs no squares: s in place of ss keeps the other array out of the cache.
  box_rows({pixels, pitch, width, height}, s, s, mask, foreground, radius, inverse, Mean{scale, offset});
}

extern "C" __global__ void sauvola_rows(const unsigned char* pixels, int pitch, int width, int height, const unsigned* s,
                                        const unsigned* ss, unsigned char* mask, unsigned long long* foreground, int radius,
                                        int inverse, int down, double k) {
  box_rows({pixels, pitch, width, height}, s, ss, mask, foreground, radius, inverse, Sauvola{k, area(radius, down)});
}

extern "C" __global__ void niblack_rows(const unsigned char* pixels, int pitch, int width, int height, const unsigned* s,
                                        const unsigned* ss, unsigned char* mask, unsigned long long* foreground, int radius,
                                        int inverse, int down, double k) {
  box_rows({pixels, pitch, width, height}, s, ss, mask, foreground, radius, inverse, Niblack{k, area(radius, down)});
}

extern "C" __global__ void phansalkar_rows(const unsigned char* pixels, int pitch, int width, int height, const unsigned* s,
                                           const unsigned* ss, unsigned char* mask, unsigned long long* foreground, int radius,
                                           int inverse, int down, double k, const double2* factors) {
  box_rows({pixels, pitch, width, height}, s, ss, mask, foreground, radius, inverse,
           Phansalkar{k, area(radius, down), factors});
}

extern "C" __global__ void bradley_rows(const unsigned char* pixels, int pitch, int width, int height, const unsigned* s,
                                        const unsigned* ss, unsigned char* mask, unsigned long long* foreground, int radius,
                                        int inverse, int down, double share) {
  // As the mean.
  box_rows({pixels, pitch, width, height}, s, s, mask, foreground, radius, inverse, Bradley{share, area(radius, down)});
}

// Wolf's threshold needs the frame's numbers first: `begin_survey` (threshold_whole.cu), box_columns,
// wolf_survey, wolf_rows.

// Block and grid of the kernels above. One atomic operation a warp.
extern "C" __global__ void wolf_survey(const unsigned char* pixels, int pitch, int width, int height, const unsigned* s,
                                       const unsigned* ss, Survey* survey, int radius, int down) {
  const int y = blockIdx.y * blockDim.y + threadIdx.y;
  if (y >= height) return;  // whole warps: a warp is in one row
  const unsigned char* row = pixels + size_t(y) * pitch;
  unsigned least = 255;
  unsigned long long greatest = 0;
  slide_along_row(s + size_t(y) * width, ss + size_t(y) * width, width, radius, 2 * radius + 1, width,
                  blockIdx.x * SEGMENT, [&](int x, unsigned sum, unsigned long long squares) {
                    least = min(least, unsigned(row[x]));
                    greatest = max(greatest, spread(sum, unsigned(squares), area(radius, down)));
                  });
  for (int step = 16; step > 0; step /= 2) {
    least = min(least, __shfl_xor_sync(ALL_LANES, least, step));
    greatest = max(greatest, __shfl_xor_sync(ALL_LANES, greatest, step));
  }
  if (threadIdx.x == 0) {
    atomicMin(&survey->least, least);
    atomicMax(&survey->greatest, greatest);
  }
}

extern "C" __global__ void wolf_rows(const unsigned char* pixels, int pitch, int width, int height, const unsigned* s,
                                     const unsigned* ss, unsigned char* mask, unsigned long long* foreground, int radius,
                                     int inverse, int down, double k, const Survey* survey) {
  const int n = area(radius, down);
  const double greatest = survey->greatest > 0 ? deviation_of(survey->greatest, n) : 1.0;
  box_rows({pixels, pitch, width, height}, s, ss, mask, foreground, radius, inverse,
           Wolf{k, n, double(survey->least), greatest});
}

// The Gaussian along the rows: weighed[y][x], `height` rows of `width`. Block ROWS_TILE_X x ROWS_TILE_Y, grid
// (width / ROWS_TILE_X, height / ROWS_TILE_Y) rounded up.

// Shared memory: (ROWS_TILE_X + 2 * radius) * ROWS_TILE_Y bytes, 316 for block 31, 764 for block 255.
extern "C" __global__ void gaussian_rows_shared(const unsigned char* pixels, int pitch, int width, int height,
                                                unsigned* weighed, int radius) {
  const Image image = {pixels, pitch, width, height};
  const int left = blockIdx.x * ROWS_TILE_X, y = blockIdx.y * ROWS_TILE_Y + threadIdx.y, x = left + threadIdx.x;
  unsigned char* row = tile + threadIdx.y * (ROWS_TILE_X + 2 * radius);
  for (int i = threadIdx.x; i < ROWS_TILE_X + 2 * radius; i += ROWS_TILE_X) {
    row[i] = pixel_at(image, left - radius + i, y);
  }
  // A thread reads what its row's others loaded, those outside the picture too.
  __syncthreads();
  if (x < width && y < height) {
    const unsigned char* centre = row + radius + threadIdx.x;
    weighed[size_t(y) * width + x] = weigh_row(radius, [=](int dx) -> unsigned { return centre[dx]; });
  }
}

// Shared memory: ROWS_TILE_X * ROWS_TILE_Y bytes, 256.
extern "C" __global__ void gaussian_rows_cached(const unsigned char* pixels, int pitch, int width, int height,
                                                unsigned* weighed, int radius) {
  __shared__ unsigned char inner[ROWS_TILE_Y][ROWS_TILE_X];
  const Image image = {pixels, pitch, width, height};
  const int left = blockIdx.x * ROWS_TILE_X, y = blockIdx.y * ROWS_TILE_Y + threadIdx.y, x = left + threadIdx.x;
  inner[threadIdx.y][threadIdx.x] = pixel_at(image, x, y);
  // A thread reads what its row's others loaded, those outside the picture too.
  __syncthreads();
  if (x < width && y < height) {
    weighed[size_t(y) * width + x] = weigh_row(radius, [=](int dx) -> unsigned {
      const int i = int(threadIdx.x) + dx;
      return 0 <= i && i < ROWS_TILE_X ? inner[threadIdx.y][i] : pixel_at(image, x + dx, y);
    });
  }
}

// The Gaussian down the columns of `weighed`, and the mask. Block COLUMNS_TILE_X x COLUMNS_THREADS_Y, grid
// (width / COLUMNS_TILE_X, height / COLUMNS_TILE_Y) rounded up.

// Shared memory: COLUMNS_TILE_X * (COLUMNS_TILE_Y + 2 * radius) * 4 bytes, 12032 for block 31, 40704 for
// block 255. A warp reads 32 neighbouring numbers: each bank once.
extern "C" __global__ void gaussian_columns_shared(const unsigned char* pixels, int pitch, int width, int height,
                                                   const unsigned* weighed, unsigned char* mask,
                                                   unsigned long long* foreground, int radius, int inverse,
                                                   int offset) {
  extern __shared__ unsigned weighed_tile[];
  const int top = blockIdx.y * COLUMNS_TILE_Y;
  const int column = clamp(blockIdx.x * COLUMNS_TILE_X + threadIdx.x, width - 1);
  for (int j = threadIdx.y; j < COLUMNS_TILE_Y + 2 * radius; j += COLUMNS_THREADS_Y) {
    const size_t y = clamp(top - radius + j, height - 1);
    weighed_tile[j * COLUMNS_TILE_X + threadIdx.x] = weighed[y * width + column];
  }
  // A thread reads what its column's others loaded.
  __syncthreads();
  compare_column({pixels, pitch, width, height}, mask, foreground, offset, inverse, [=](int j) {
    const unsigned* centre = weighed_tile + (radius + j) * COLUMNS_TILE_X + threadIdx.x;
    return weigh_column(radius, [=](int dy) { return centre[dy * COLUMNS_TILE_X]; });
  });
}

// Shared memory: COLUMNS_TILE_X * COLUMNS_TILE_Y * 4 bytes, 8192.
extern "C" __global__ void gaussian_columns_cached(const unsigned char* pixels, int pitch, int width, int height,
                                                   const unsigned* weighed, unsigned char* mask,
                                                   unsigned long long* foreground, int radius, int inverse,
                                                   int offset) {
  __shared__ unsigned inner[COLUMNS_TILE_Y][COLUMNS_TILE_X];
  const int top = blockIdx.y * COLUMNS_TILE_Y;
  const int column = clamp(blockIdx.x * COLUMNS_TILE_X + threadIdx.x, width - 1);
  const auto row = [=](int y) { return weighed[size_t(clamp(y, height - 1)) * width + column]; };
  for (int j = threadIdx.y; j < COLUMNS_TILE_Y; j += COLUMNS_THREADS_Y) inner[j][threadIdx.x] = row(top + j);
  // A thread reads what its column's others loaded.
  __syncthreads();
  compare_column({pixels, pitch, width, height}, mask, foreground, offset, inverse, [=](int j) {
    return weigh_column(radius, [=](int dy) {
      const int i = j + dy;
      return 0 <= i && i < COLUMNS_TILE_Y ? inner[i][threadIdx.x] : row(top + i);
    });
  });
}
